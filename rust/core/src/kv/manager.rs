//! The one owner of KV blocks.
//!
//! It serves one layer group of full attention: a sequence holds every block
//! from its first token on. Groups with other facts (a sliding window, a
//! recurrent state) differ in which of these blocks a lease keeps and are to
//! be further leases of the same sequence over pools of their own.

use super::evict::LruList;
use super::pool::BlockPool;
use super::radix::RadixTree;
use crate::ids::{BlockId, Token};

/// The blocks that one sequence holds, in the order of its tokens.
#[derive(Debug, Default)]
pub struct Lease {
    blocks: Vec<u32>,
    /// Leading blocks that are known to be in the tree.
    cached: usize,
    salt: u64,
    /// A block could not enter the tree; none after it can.
    sealed: bool,
}

impl Lease {
    /// An empty lease under a salt.
    pub fn new(salt: u64) -> Self {
        Self { salt, ..Self::default() }
    }

    /// The same sequence with no block, for after [`KvManager::reset`].
    pub fn voided(&self) -> Self {
        Self::new(self.salt)
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

    /// Makes room for `blocks` blocks in all, so that growing does not allocate.
    pub fn reserve(&mut self, blocks: usize) {
        self.blocks.reserve_exact(blocks.saturating_sub(self.blocks.len()));
    }

    pub(super) fn blocks(&self) -> &[u32] {
        &self.blocks
    }
}

/// What the prefix cache can give a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixMatch {
    /// Leading blocks in the cache that this step may read.
    pub blocks: usize,
    /// Those of them that nobody holds: leasing makes so many less available.
    pub unleased: usize,
    /// The next block is computed in this very step.
    pub continues: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct KvManager {
    block_size: usize,
    caching: bool,
    identities: bool,
    pool: BlockPool,
    tree: RadixTree,
    lru: LruList,
    /// The last match, for `lease_match`.
    matched: Vec<u32>,
    /// Leases that end when the step is settled: this step still writes there.
    settling: Vec<u32>,
}

impl KvManager {
    /// A manager of `blocks` free blocks of `block_size` tokens. With
    /// `identities` the blocks of the prefix cache have theirs.
    pub fn new(blocks: u32, block_size: u32, caching: bool, identities: bool) -> Self {
        Self {
            block_size: block_size as usize,
            caching,
            identities,
            pool: BlockPool::new(blocks),
            tree: RadixTree::new(blocks as usize, block_size as usize, identities),
            lru: LruList::new(blocks as usize),
            matched: Vec::new(),
            settling: Vec::new(),
        }
    }

    /// Blocks in all.
    pub fn total(&self) -> usize {
        self.pool.len()
    }

    /// Blocks that nobody holds but the cache.
    pub fn cached(&self) -> usize {
        self.lru.len()
    }

    /// Blocks that sequences hold.
    pub fn leased(&self) -> usize {
        self.total() - self.available()
    }

    /// Blocks that a lease can take: free, or cached and evictable.
    pub fn available(&self) -> usize {
        self.pool.free().len() + self.lru.len()
    }

    /// Blocks for `tokens` tokens.
    pub fn blocks_for(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.block_size)
    }

    /// Looks up the start of `tokens` under the salt of `lease`, for `step` to
    /// read. At least one token is left to compute.
    pub fn match_prefix(&mut self, lease: &Lease, tokens: &[Token], step: u64) -> PrefixMatch {
        self.matched.clear();
        let most = tokens.len().saturating_sub(1) / self.block_size;
        let continues =
            self.caching && self.tree.find_prefix(lease.salt, tokens, most, step, &mut self.matched);
        // Leases end from the tail, so the blocks without one are the last.
        let unleased = self.matched.iter().rev().take_while(|&&b| self.pool.refs(b) == 0).count();
        PrefixMatch { blocks: self.matched.len(), unleased, continues }
    }

    /// A match of nothing, for a sequence that may not read the cache.
    pub fn match_nothing(&mut self) -> PrefixMatch {
        self.matched.clear();
        PrefixMatch { blocks: 0, unleased: 0, continues: false }
    }

    /// Leases the blocks of the last match to `lease`, which must be empty.
    pub fn lease_match(&mut self, lease: &mut Lease) {
        debug_assert!(lease.is_empty());
        for &block in &self.matched {
            if self.pool.retain(block) {
                self.lru.remove(block);
            }
        }
        lease.blocks.append(&mut self.matched);
        lease.cached = lease.blocks.len();
        lease.sealed = false;
    }

    /// Extends `lease` to `blocks` blocks, evicting cached ones as needed; false,
    /// and nothing changes, if so many are not available.
    #[must_use]
    pub fn grow(&mut self, lease: &mut Lease, blocks: usize) -> bool {
        let missing = blocks.saturating_sub(lease.len());
        if missing > self.available() {
            return false;
        }
        for _ in 0..missing {
            let block = self.pool.take().or_else(|| {
                let oldest = self.lru.pop_front()?;
                self.tree.remove_leaf(oldest);
                self.pool.give_back(oldest);
                self.pool.take()
            });
            lease.blocks.extend(block);
        }
        true
    }

    /// Puts the blocks of `lease` that are full with the first `computed` of
    /// `tokens` into the tree. Their content is computed by `step` or earlier.
    /// A block whose content the tree already has is exchanged for the tree's;
    /// returns the first index where that happened.
    pub fn cache_full(
        &mut self,
        lease: &mut Lease,
        tokens: &[Token],
        computed: usize,
        step: u64,
    ) -> Option<usize> {
        let mut exchanged = None;
        while self.caching && !lease.sealed && (lease.cached + 1) * self.block_size <= computed {
            let at = lease.cached;
            let parent = at.checked_sub(1).map(|p| lease.blocks[p]);
            if parent.is_some_and(|p| !self.tree.contains(p)) {
                lease.sealed = true;
                break;
            }
            let own = lease.blocks[at];
            let content = &tokens[at * self.block_size..(at + 1) * self.block_size];
            if let Some(twin) = self.tree.insert(lease.salt, parent, content, own, step) {
                if self.pool.retain(twin) {
                    self.lru.remove(twin);
                }
                lease.blocks[at] = twin;
                self.settling.push(own);
                exchanged = exchanged.or(Some(at));
            }
            lease.cached += 1;
        }
        exchanged
    }

    /// Ends the leases that waited for the step to be planned.
    pub fn settle(&mut self) {
        while let Some(block) = self.settling.pop() {
            self.release_block(block);
        }
    }

    /// Gives back all blocks of `lease`; those in the tree stay cached.
    pub fn release(&mut self, lease: &mut Lease) {
        while let Some(block) = lease.blocks.pop() {
            self.release_block(block);
        }
        lease.cached = 0;
        lease.sealed = false;
    }

    /// Takes the blocks of `lease`, and all that build on them, out of the tree.
    pub fn forget(&mut self, lease: &Lease) {
        for &block in lease.blocks.iter().rev() {
            while self.tree.contains(block) {
                let leaf = self.tree.leaf_under(block);
                self.forget_leaf(leaf);
            }
        }
    }

    /// Takes all blocks out of the tree. True if nobody held one of them.
    pub fn forget_all(&mut self) -> bool {
        while let Some(block) = self.lru.pop_front() {
            self.tree.remove_leaf(block);
            self.pool.give_back(block);
        }
        let unused = self.tree.members().next().is_none();
        self.tree.clear();
        unused
    }

    /// Takes everything back to the start. Leases that are out are void and must
    /// be dropped, not released.
    pub fn reset(&mut self) {
        *self = Self::new(self.total() as u32, self.block_size as u32, self.caching, self.identities);
    }

    fn release_block(&mut self, block: u32) {
        if self.pool.release(block) {
            if self.tree.contains(block) {
                self.lru.push_back(block);
            } else {
                self.pool.give_back(block);
            }
        }
    }

    fn forget_leaf(&mut self, block: u32) {
        self.tree.remove_leaf(block);
        if self.pool.refs(block) == 0 {
            self.lru.remove(block);
            self.pool.give_back(block);
        }
    }

    pub(super) fn parts(&self) -> (&BlockPool, &RadixTree, &LruList, &[u32]) {
        (&self.pool, &self.tree, &self.lru, &self.settling)
    }
}
