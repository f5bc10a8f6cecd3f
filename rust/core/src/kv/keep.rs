//! Which blocks of a sequence a layer group keeps: facts of the model, and the
//! only place that knows what follows from them.

/// What a layer group beside the spine keeps of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The blocks that hold the last so many tokens, the one that is computed
    /// included: sliding window attention.
    Last(u32),
    /// One block with the state after the tokens so far: recurrent layers. Where a
    /// step ends at a multiple of `every` blocks, the state is kept for the prefix
    /// cache and the sequence goes on in another block.
    State {
        /// Blocks of tokens from snapshot to snapshot.
        every: u32,
    },
    /// So many blocks from the first step to the last: cross attention to an
    /// encoder's output. The prefix cache keeps none of them.
    Fixed(u32),
}

impl Keep {
    /// The first block that is read to compute the token at `position` and later
    /// ones.
    pub fn first_block(self, position: usize, block_size: usize) -> usize {
        match self {
            Self::Last(window) => (position + 1).saturating_sub(window as usize) / block_size,
            Self::State { .. } | Self::Fixed(_) => 0,
        }
    }

    /// Blocks with which a sequence of any length can always compute its next token.
    pub fn most_blocks(self, block_size: usize) -> usize {
        match self {
            Self::Last(window) => (window as usize - 1).div_ceil(block_size) + 1,
            Self::State { .. } => 1,
            Self::Fixed(blocks) => blocks as usize,
        }
    }

    /// Entries of the group's block table where a sequence has `blocks` blocks.
    pub fn table_blocks(self, blocks: usize) -> usize {
        match self {
            Self::Last(_) => blocks,
            Self::State { .. } => 2,
            Self::Fixed(own) => own as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Keep;

    #[test]
    fn a_window_always_fits_the_blocks_it_may_need() {
        for block_size in 1..6 {
            for window in 1..20 {
                let keep = Keep::Last(window);
                let most = (0..60)
                    .map(|at| at / block_size + 1 - keep.first_block(at, block_size))
                    .max()
                    .unwrap_or_default();
                assert_eq!(most, keep.most_blocks(block_size), "{window} tokens in blocks of {block_size}");
                for at in 0..60usize {
                    let oldest = (at + 1).saturating_sub(window as usize);
                    assert_eq!(keep.first_block(at, block_size), oldest / block_size);
                }
            }
        }
    }
}
