//! The order in which cached blocks are given up: least recently used first,
//! an intrusive list over block numbers with O(1) operations.
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

/// Cached blocks, least recently used first.
#[derive(Debug)]
pub struct LruList {
    links: Vec<Links>,
    front: u32,
    back: u32,
    len: usize,
}

impl LruList {
    /// An empty list over `blocks` block numbers.
    pub fn new(blocks: usize) -> Self {
        Self { links: vec![Links { prev: NONE, next: NONE }; blocks], front: NONE, back: NONE, len: 0 }
    }

    /// Blocks in the list.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds a block that is not in the list as the most recently used.
    pub fn push_back(&mut self, block: u32) {
        self.links[block as usize] = Links { prev: self.back, next: NONE };
        match self.back {
            NONE => self.front = block,
            back => self.links[back as usize].next = block,
        }
        self.back = block;
        self.len += 1;
    }

    /// Removes a block that is in the list.
    pub fn remove(&mut self, block: u32) {
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

    /// Removes and returns the least recently used block.
    pub fn pop_front(&mut self) -> Option<u32> {
        let front = (self.front != NONE).then_some(self.front)?;
        self.remove(front);
        Some(front)
    }

    /// The blocks, least recently used first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors((self.front != NONE).then_some(self.front), |&block| {
            let next = self.links[block as usize].next;
            (next != NONE).then_some(next)
        })
    }
}
