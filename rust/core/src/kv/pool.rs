//! Block numbers with reference counts, and those that are free.

/// Free blocks are those on the stack; all others belong to the manager.
#[derive(Debug)]
pub struct BlockPool {
    refs: Vec<u32>,
    free: Vec<u32>,
}

impl BlockPool {
    /// A pool of `blocks` free blocks. Low numbers are handed out first.
    pub fn new(blocks: u32) -> Self {
        Self { refs: vec![0; blocks as usize], free: (0..blocks).rev().collect() }
    }

    /// Blocks in all.
    pub fn len(&self) -> usize {
        self.refs.len()
    }

    /// The free blocks.
    pub fn free(&self) -> &[u32] {
        &self.free
    }

    /// Leases a free block once.
    pub fn take(&mut self) -> Option<u32> {
        let block = self.free.pop()?;
        self.refs[block as usize] = 1;
        Some(block)
    }

    /// Leases a block once more (or a cached one for the first time); true if
    /// it had no lease.
    pub fn retain(&mut self, block: u32) -> bool {
        let refs = &mut self.refs[block as usize];
        *refs += 1;
        *refs == 1
    }

    /// Ends one lease of a block; true if it was the last.
    pub fn release(&mut self, block: u32) -> bool {
        let refs = &mut self.refs[block as usize];
        *refs -= 1;
        *refs == 0
    }

    /// Leases of a block.
    pub fn refs(&self, block: u32) -> u32 {
        self.refs[block as usize]
    }

    /// Puts a block without lease among the free ones.
    pub fn give_back(&mut self, block: u32) {
        self.free.push(block);
    }
}
