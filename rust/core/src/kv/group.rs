//! A layer group beside the spine: blocks of its own, of which a sequence holds
//! those that its [`Keep`] asks for.
//!
//! A node of the prefix cache can have a companion here: the block with this
//! group's part of the node's tokens, or the state after them. Companions that
//! nobody holds are given up least recently used first, whatever becomes of the
//! node; a prefix can be used where the group still has what its next token reads.

use super::evict::EvictionOrder;
use super::index::NONE;
use super::keep::Keep;
use super::lease::Held;
use super::pins::Pins;
use super::pool::BlockPool;

/// What a group is made of.
#[derive(Clone, Copy, Debug)]
pub struct GroupConfig {
    /// What it keeps.
    pub keep: Keep,
    /// Its blocks on the device.
    pub blocks: u32,
    /// Blocks that stay available when a sequence joins others.
    pub reserve: usize,
}

/// A node's block in a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Companion {
    pub(super) block: u32,
    /// The step that computes it.
    step: u64,
}

const NO_COMPANION: Companion = Companion { block: NONE, step: 0 };

/// See the module's documentation.
#[derive(Debug)]
pub struct Group {
    keep: Keep,
    block_size: usize,
    reserve: usize,
    pub(super) pool: BlockPool,
    /// Companions that nobody holds.
    pub(super) lru: EvictionOrder,
    /// By node of the tree.
    pub(super) companions: Vec<Companion>,
    /// By block: the node whose companion it is.
    pub(super) nodes: Vec<u32>,
    /// While a match is looked for: companions in a row up to the node in question.
    in_a_row: usize,
    /// Companions of the last match that nobody holds.
    unleased: usize,
}

impl Group {
    /// A group of free blocks beside a tree of `nodes` nodes.
    pub fn new(config: GroupConfig, nodes: usize, block_size: usize) -> Self {
        let blocks = config.blocks as usize;
        Self {
            keep: config.keep,
            block_size,
            reserve: config.reserve,
            pool: BlockPool::new(config.blocks),
            lru: EvictionOrder::new(blocks),
            companions: vec![NO_COMPANION; nodes],
            nodes: vec![NONE; blocks],
            in_a_row: 0,
            unleased: 0,
        }
    }

    /// Blocks that a sequence can take: free, or cached and evictable.
    pub fn available(&self) -> usize {
        self.pool.free().len() + self.lru.len()
    }

    /// Blocks in all.
    pub fn total(&self) -> usize {
        self.pool.len()
    }

    /// Makes room for what a sequence of `blocks` blocks holds between two steps.
    pub fn reserve(&self, held: &mut Held, blocks: usize) {
        let most = self.keep.most_blocks(self.block_size).min(blocks.max(1)) + 1;
        held.blocks.reserve(most.saturating_sub(held.blocks.len()));
    }

    fn first_block(&self, position: usize) -> usize {
        self.keep.first_block(position, self.block_size)
    }

    fn companion(&self, node: u32, step: u64) -> Option<u32> {
        let companion = self.companions[node as usize];
        (companion.block != NONE && companion.step != step).then_some(companion.block)
    }

    /// A match begins.
    pub fn begin_match(&mut self) {
        self.in_a_row = 0;
    }

    /// True if a match may end with `node`, its block `at`, for `step` to read what
    /// is before. Asked for each node from the first on.
    pub fn may_end_with(&mut self, node: u32, at: usize, step: u64) -> bool {
        let is_there = self.companion(node, step).is_some();
        match self.keep {
            Keep::Last(_) => {
                self.in_a_row = if is_there { self.in_a_row + 1 } else { 0 };
                at + 1 - self.first_block((at + 1) * self.block_size) <= self.in_a_row
            }
            Keep::State { .. } => is_there,
            Keep::Fixed(_) => true,
        }
    }

    /// The match is `nodes`.
    pub fn end_match(&mut self, nodes: &[u32]) {
        let unleased = self.matched(nodes).filter(|&block| self.pool.refs(block) == 0).count();
        self.unleased = unleased;
    }

    /// The companions that a sequence needs which goes on after `nodes`.
    fn matched<'a>(&'a self, nodes: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
        let first = match self.keep {
            Keep::Last(_) => self.first_block(nodes.len() * self.block_size),
            Keep::State { .. } => nodes.len().saturating_sub(1),
            Keep::Fixed(_) => nodes.len(),
        };
        nodes[first..].iter().map(|&node| self.companions[node as usize].block)
    }

    /// Leases what a sequence needs that goes on after the `nodes` of the last match.
    pub fn lease_match(&mut self, held: &mut Held, nodes: &[u32], pins: &Pins) {
        held.blocks.extend(self.matched(nodes));
        held.first = self.first_block(nodes.len() * self.block_size);
        for &block in &held.blocks {
            if self.pool.retain(block) {
                self.lru.remove(block, pins.contains(self.nodes[block as usize]));
            }
        }
    }

    /// True if a sequence of `blocks` blocks can join that goes on after the
    /// `matched` blocks of the last match; with `beside_others` a reserve is left.
    pub fn admits(&self, blocks: usize, matched: usize, beside_others: bool) -> bool {
        let missing = match self.keep {
            Keep::Last(_) => {
                let end = self.end(matched * self.block_size, blocks);
                end.saturating_sub(matched)
            }
            // It can go on in a snapshot that is nobody else's.
            Keep::State { .. } => usize::from(matched == 0 || self.unleased == 0),
            Keep::Fixed(own) => own as usize,
        };
        let reserve = if beside_others { self.reserve } else { 0 };
        missing + reserve <= self.available() - self.unleased
    }

    /// True if a sequence of `blocks` blocks could join were `held` more available.
    pub fn could_admit(&self, blocks: usize, held: usize, beside_others: bool) -> bool {
        let needed = match self.keep {
            Keep::Last(_) => self.end(0, blocks),
            Keep::State { .. } | Keep::Fixed(_) => self.keep.most_blocks(self.block_size),
        };
        let reserve = if beside_others { self.reserve } else { 0 };
        needed + reserve <= self.available() + held
    }

    /// Of a window: where the blocks end that a sequence of `blocks` blocks holds
    /// which goes on at `position`.
    fn end(&self, position: usize, blocks: usize) -> usize {
        blocks.min(self.first_block(position) + self.keep.most_blocks(self.block_size))
    }

    /// Blocks that [`Self::hold`] cannot do without.
    pub fn missing(&self, held: &Held, position: usize, blocks: usize) -> usize {
        match self.keep {
            Keep::Last(_) => self.end(position, blocks).saturating_sub(held.range().end),
            Keep::State { .. } => {
                let is_shared = held.blocks.back().is_none_or(|&block| self.pool.refs(block) > 1);
                usize::from(is_shared)
            }
            Keep::Fixed(own) => own as usize - held.len(),
        }
    }

    /// Takes what a sequence of `blocks` blocks needs to go on at `position`. So
    /// many as are missing must be available.
    pub fn hold(&mut self, held: &mut Held, position: usize, blocks: usize, pins: &Pins) {
        let mut missing = self.missing(held, position, blocks);
        if let (Keep::State { .. }, Some(&block)) = (self.keep, held.blocks.back())
            && missing == 0
            && self.nodes[block as usize] != NONE
        {
            if self.available() == 0 {
                // Better no snapshot than no room.
                self.part(self.nodes[block as usize]);
            } else {
                missing = 1;
            }
        }
        for _ in 0..missing {
            let block = self.take(pins);
            held.blocks.extend(block);
        }
    }

    /// Of a window: takes blocks for all tokens before the end of block `blocks`,
    /// which [`Self::step_end`] says can be had.
    pub fn widen(&mut self, held: &mut Held, blocks: usize, pins: &Pins) {
        if let Keep::Last(_) = self.keep {
            for _ in held.range().end..blocks {
                let block = self.take(pins);
                held.blocks.extend(block);
            }
        }
    }

    /// Where a step may end that computes a sequence from `start` to `end`.
    pub fn step_end(&self, held: &Held, start: usize, end: usize) -> usize {
        match self.keep {
            Keep::Last(_) => end.min((held.range().end + self.available()) * self.block_size),
            Keep::State { every } => {
                let stride = every as usize * self.block_size;
                let aligned = end / stride * stride;
                if aligned > start { aligned } else { end }
            }
            Keep::Fixed(_) => end,
        }
    }

    fn take(&mut self, pins: &Pins) -> Option<u32> {
        self.pool.take().or_else(|| {
            let oldest = self.lru.front()?;
            let node = self.nodes[oldest as usize];
            self.lru.remove(oldest, pins.contains(node));
            self.part(node);
            self.pool.give_back(oldest);
            self.pool.take()
        })
    }

    /// Gives back what a sequence does not need that goes on at `position`.
    pub fn slide(&mut self, held: &mut Held, position: usize, pins: &Pins) {
        match self.keep {
            Keep::Last(_) => {
                let first = self.first_block(position);
                while held.first < first {
                    held.first += 1;
                    if let Some(block) = held.blocks.pop_front() {
                        self.release_block(block, pins);
                    }
                }
            }
            Keep::State { .. } => {
                // Once a step was planned that reads the one and writes the other.
                if let (Some(&from), Some(&to)) = (held.blocks.front(), held.blocks.back())
                    && from != to
                    && held.told_state == Some((from, to))
                {
                    held.blocks.pop_front();
                    self.release_block(from, pins);
                }
            }
            Keep::Fixed(_) => {}
        }
    }

    /// Gives back everything.
    pub fn release(&mut self, held: &mut Held, pins: &Pins) {
        while let Some(block) = held.blocks.pop_front() {
            self.release_block(block, pins);
        }
        *held = Held { blocks: std::mem::take(&mut held.blocks), ..Held::default() };
    }

    fn release_block(&mut self, block: u32, pins: &Pins) {
        if self.pool.release(block) {
            match self.nodes[block as usize] {
                NONE => self.pool.give_back(block),
                node => self.lru.push_back(block, pins.contains(node)),
            }
        }
    }

    /// The sequence's block `at` is that of `node`, and its first `scheduled` tokens
    /// are computed by `step` or earlier: the node gets a companion if it has none
    /// and the sequence has one.
    pub fn enter(&mut self, held: &Held, node: u32, at: usize, scheduled: usize, step: u64) {
        if self.companions[node as usize].block != NONE {
            return;
        }
        let own = match self.keep {
            Keep::Last(_) => at.checked_sub(held.first).and_then(|place| held.blocks.get(place)),
            Keep::State { every } => {
                let is_due = (at + 1).is_multiple_of(every as usize);
                held.blocks.back().filter(|_| is_due && scheduled == (at + 1) * self.block_size)
            }
            Keep::Fixed(_) => None,
        };
        if let Some(&block) = own.filter(|&&block| self.nodes[block as usize] == NONE) {
            self.companions[node as usize] = Companion { block, step };
            self.nodes[block as usize] = node;
        }
    }

    /// A node leaves the tree.
    pub fn leave(&mut self, node: u32, pins: &Pins) {
        let block = self.companions[node as usize].block;
        if block != NONE {
            if self.pool.refs(block) == 0 {
                self.lru.remove(block, pins.contains(node));
                self.pool.give_back(block);
            }
            self.part(node);
        }
    }

    /// All nodes leave the tree.
    pub fn all_leave(&mut self, pins: &Pins) {
        (0..self.companions.len() as u32).for_each(|node| self.leave(node, pins));
    }

    /// A node and its companion part.
    fn part(&mut self, node: u32) {
        let block = std::mem::replace(&mut self.companions[node as usize], NO_COMPANION).block;
        self.nodes[block as usize] = NONE;
    }

    /// A node is pinned from now on, or no longer.
    pub fn repin(&mut self, node: u32, pinned: bool) {
        let block = self.companions[node as usize].block;
        if block != NONE && self.pool.refs(block) == 0 {
            self.lru.remove(block, !pinned);
            self.lru.push_back(block, pinned);
        }
    }

    /// Calls `tell` with the table entries, index and block, that the workers need
    /// for a step that computes up to the end of block `blocks`.
    pub fn tell(&self, held: &mut Held, blocks: usize, mut tell: impl FnMut(usize, u32)) {
        match self.keep {
            Keep::Last(_) => {
                for at in held.told.max(held.first)..blocks {
                    tell(at, held.blocks[at - held.first]);
                }
                held.told = held.told.max(blocks);
            }
            Keep::State { .. } => {
                let (Some(&from), Some(&to)) = (held.blocks.front(), held.blocks.back()) else { return };
                let told = held.told_state.replace((from, to));
                if told.is_none_or(|(known, _)| known != from) {
                    tell(0, from);
                }
                if told.is_none_or(|(_, known)| known != to) {
                    tell(1, to);
                }
            }
            Keep::Fixed(_) => {
                for at in held.told..held.len() {
                    tell(at, held.blocks[at]);
                }
                held.told = held.len();
            }
        }
    }

    /// True if `held` has what the token before `scheduled` read and the next needs
    /// to be computed after.
    pub fn serves(&self, held: &Held, scheduled: usize) -> bool {
        match self.keep {
            Keep::Last(_) => {
                let blocks = scheduled.div_ceil(self.block_size);
                held.first <= self.first_block(scheduled) && held.range().end >= blocks
            }
            Keep::State { .. } => matches!(held.len(), 1 | 2),
            Keep::Fixed(own) => held.len() == own as usize,
        }
    }
}
