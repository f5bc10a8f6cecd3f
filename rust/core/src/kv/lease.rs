//! What one sequence holds.

use std::collections::VecDeque;

use crate::ids::BlockId;

/// The blocks that one sequence holds, in the order of its tokens.
#[derive(Debug, Default)]
pub struct Lease {
    pub(super) blocks: Vec<u32>,
    /// Leading blocks that are known to be in the tree.
    pub(super) cached: usize,
    pub(super) salt: u64,
    /// A block could not enter the tree; none after it can.
    pub(super) sealed: bool,
    /// What it holds in the groups beside the spine.
    pub(super) groups: Vec<Held>,
}

impl Lease {
    /// An empty lease under a salt, where there are so many groups beside the spine.
    pub(super) fn new(salt: u64, groups: usize) -> Self {
        Self { salt, groups: (0..groups).map(|_| Held::default()).collect(), ..Self::default() }
    }

    /// The same sequence with no block, for after [`KvManager::reset`](super::KvManager::reset).
    pub fn voided(&self) -> Self {
        Self::new(self.salt, self.groups.len())
    }

    /// Leading blocks that were put into the tree or came from it.
    pub fn cached(&self) -> usize {
        self.cached
    }

    /// Blocks held.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// True if it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The block at `index`.
    pub fn block(&self, index: usize) -> BlockId {
        BlockId(self.blocks[index])
    }
}

/// What a sequence holds in one group.
#[derive(Debug, Default)]
pub struct Held {
    /// Place of the first block in the sequence's table.
    pub(super) first: usize,
    /// Of a state: the block to write, and before it that to read where they differ.
    pub(super) blocks: VecDeque<u32>,
    /// Leading table entries that the workers know, or that are of no use any more.
    pub(super) told: usize,
    /// Of a state: the table entries that the workers know.
    pub(super) told_state: Option<(u32, u32)>,
}

impl Held {
    /// The blocks.
    pub fn blocks(&self) -> impl Iterator<Item = u32> + '_ {
        self.blocks.iter().copied()
    }

    /// Blocks held.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Places in the table that blocks are held for.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.blocks.len()
    }
}
