//! The order in which cached blocks are given up: least recently used first,
//! an intrusive list over block numbers with O(1) operations.
//!
//! Pinned blocks stand in an order of their own, which is used when the other is
//! empty.
//!
//! Blocks enter when their last lease ends. A sequence holds its blocks from
//! the root of the tree on and gives them back last block first, so a block
//! always stands before its parent: the front is a leaf of the tree.

use super::index::NONE;

#[derive(Clone, Copy, Debug)]
struct Links {
    prev: u32,
    next: u32,
}

/// Cached blocks in the order in which they are evicted.
#[derive(Debug)]
pub struct EvictionOrder {
    plain: LruList,
    pinned: LruList,
}

impl EvictionOrder {
    /// An empty order over `blocks` block numbers.
    pub fn new(blocks: usize) -> Self {
        Self { plain: LruList::new(blocks), pinned: LruList::new(blocks) }
    }

    /// Blocks in the order.
    pub fn len(&self) -> usize {
        self.plain.len + self.pinned.len
    }

    /// Adds a block that is not in the order as the most recently used.
    pub fn push_back(&mut self, block: u32, pinned: bool) {
        self.list(pinned).push_back(block);
    }

    /// Removes a block that is in the order; `pinned` as it was added.
    pub fn remove(&mut self, block: u32, pinned: bool) {
        self.list(pinned).remove(block);
    }

    /// The block to evict first.
    pub fn front(&self) -> Option<u32> {
        self.plain.front().or_else(|| self.pinned.front())
    }

    /// The blocks that are not pinned and those that are, each least recently
    /// used first.
    pub fn iter(&self) -> impl Iterator<Item = (u32, bool)> + '_ {
        self.plain.iter().map(|block| (block, false)).chain(self.pinned.iter().map(|block| (block, true)))
    }

    fn list(&mut self, pinned: bool) -> &mut LruList {
        if pinned { &mut self.pinned } else { &mut self.plain }
    }
}

/// Blocks, least recently used first.
#[derive(Debug)]
pub(super) struct LruList {
    links: Vec<Links>,
    front: u32,
    back: u32,
    len: usize,
}

impl LruList {
    /// Blocks in the list.
    pub fn len(&self) -> usize {
        self.len
    }

    /// An empty list over `blocks` block numbers.
    pub(super) fn new(blocks: usize) -> Self {
        Self { links: vec![Links { prev: NONE, next: NONE }; blocks], front: NONE, back: NONE, len: 0 }
    }

    /// Adds a block that is not in the list as the most recently used.
    pub(super) fn push_back(&mut self, block: u32) {
        self.links[block as usize] = Links { prev: self.back, next: NONE };
        match self.back {
            NONE => self.front = block,
            back => self.links[back as usize].next = block,
        }
        self.back = block;
        self.len += 1;
    }

    /// Removes a block that is in the list.
    pub(super) fn remove(&mut self, block: u32) {
        let Links { prev, next } = self.links[block as usize];
        match prev {
            NONE => self.front = next,
            prev => self.links[prev as usize].next = next,
        }
        match next {
            NONE => self.back = prev,
            next => self.links[next as usize].prev = prev,
        }
        self.len -= 1;
    }

    /// The least recently used block.
    pub(super) fn front(&self) -> Option<u32> {
        (self.front != NONE).then_some(self.front)
    }

    /// The blocks, least recently used first.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.front(), |&block| {
            let next = self.links[block as usize].next;
            (next != NONE).then_some(next)
        })
    }
}
