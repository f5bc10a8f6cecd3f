//! The one owner of KV blocks.
//!
//! It serves one layer group of full attention: a sequence holds every block
//! from its first token on. Groups with other facts (a sliding window, a
//! recurrent state) differ in which of these blocks a lease keeps and are to
//! be further leases of the same sequence over pools of their own.

use super::events::{EventLog, KvEvents};
use super::evict::EvictionOrder;
use super::identity::BlockHash;
use super::pins::Pins;
use super::pool::BlockPool;
use super::radix::RadixTree;
use super::tiers::{Copies, TierConfig, Tiers};
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

    /// Makes room for `blocks` blocks in all, so that growing does not allocate.
    pub fn reserve(&mut self, blocks: usize) {
        self.blocks.reserve_exact(blocks.saturating_sub(self.blocks.len()));
    }

    pub(super) fn blocks(&self) -> &[u32] {
        &self.blocks
    }
}

/// What the laws are about; see [`super::check`].
pub(super) struct Parts<'a> {
    pub pool: &'a BlockPool,
    pub tree: &'a RadixTree,
    pub lru: &'a EvictionOrder,
    pub pins: &'a Pins,
    pub settling: &'a [u32],
    pub tiers: Option<&'a Tiers>,
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

/// What a manager is made of.
#[derive(Clone, Copy, Debug)]
pub struct KvConfig {
    /// Blocks on the device.
    pub blocks: u32,
    /// Tokens in a block.
    pub block_size: u32,
    /// Keep prefixes.
    pub caching: bool,
    /// Most blocks that can be pinned.
    pub max_pinned: usize,
    /// The blocks of the prefix cache have identities; tiers need them.
    pub identities: bool,
    /// Collect what enters and leaves the prefix cache; needs `identities`.
    pub events: bool,
    /// What there is below the device.
    pub tiers: Option<TierConfig>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct KvManager {
    config: KvConfig,
    block_size: usize,
    caching: bool,
    pool: BlockPool,
    tree: RadixTree,
    lru: EvictionOrder,
    pins: Pins,
    events: EventLog,
    tiers: Option<Tiers>,
    /// The last match, for `lease_match`.
    matched: Vec<u32>,
    /// Leases that end when the step is settled: this step still writes there.
    settling: Vec<u32>,
}

impl KvManager {
    /// A manager of free blocks.
    pub fn new(config: KvConfig) -> Self {
        let (blocks, block_size) = (config.blocks as usize, config.block_size as usize);
        Self {
            config,
            block_size,
            caching: config.caching,
            pool: BlockPool::new(config.blocks),
            tree: RadixTree::new(blocks, block_size, config.identities),
            lru: EvictionOrder::new(blocks),
            pins: Pins::new(blocks, config.max_pinned),
            events: EventLog::new(blocks, config.events),
            tiers: config.tiers.map(|tiers| Tiers::new(tiers, blocks)),
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

    /// Blocks that are pinned, those that sequences hold included.
    pub fn pinned(&self) -> usize {
        self.pins.len()
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
        let most = blocks_to_read(tokens, self.block_size).len();
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
                self.lru.remove(block, self.pins.contains(block));
            }
        }
        lease.blocks.append(&mut self.matched);
        lease.cached = lease.blocks.len();
        lease.sealed = false;
    }

    /// Looks up how many blocks of `tokens` the host has after those of `lease`,
    /// for [`Self::load`]; at most `most`.
    pub fn find_below(&mut self, lease: &Lease, tokens: &[Token], most: usize) -> usize {
        let parent = self.identity_before(lease.salt, lease.blocks.last().copied());
        let rest = blocks_to_read(tokens, self.block_size).skip(lease.len());
        self.tiers.as_mut().map_or(0, |tiers| tiers.find(parent(), rest, most))
    }

    /// Has `step`, which is being planned, load what the last [`Self::find_below`] found
    /// into the blocks of `lease` after its cached ones.
    pub fn load(&mut self, lease: &mut Lease, tokens: &[Token], found: usize, step: u64) {
        let Some(tiers) = &mut self.tiers else { return };
        let first = lease.cached;
        tiers.load(&lease.blocks[first..first + found]);
        for at in first..first + found {
            let parent = at.checked_sub(1).map(|before| lease.blocks[before]);
            let content = &tokens[at * self.block_size..(at + 1) * self.block_size];
            // Loads come before rows: this very step may read the block.
            let twin = self.tree.insert(lease.salt, parent, content, lease.blocks[at], 0);
            debug_assert_eq!(twin, None, "the match ended before the block");
            self.events.entered(lease.blocks[at], step);
        }
        lease.cached += found;
    }

    /// Has what the tiers below the host have of `tokens` fetched to the host;
    /// returns what to wait for.
    pub fn fetch(&mut self, lease: &Lease, tokens: &[Token], step: u64) -> Vec<BlockHash> {
        if !self.tiers.as_ref().is_some_and(Tiers::has_disk) {
            return Vec::new();
        }
        let found = self.match_prefix(lease, tokens, step).blocks;
        let parent = self.identity_before(lease.salt, self.matched.last().copied());
        let rest = blocks_to_read(tokens, self.block_size).skip(found);
        self.tiers.as_mut().map_or_else(Vec::new, |tiers| tiers.fetch(parent(), rest))
    }

    /// The tiers below the device, if there are some.
    pub fn tiers(&self) -> Option<&Tiers> {
        self.tiers.as_ref()
    }

    /// The tiers below the device, if there are some.
    pub fn tiers_mut(&mut self) -> Option<&mut Tiers> {
        self.tiers.as_mut()
    }

    /// Planning of a step begins.
    pub fn begin(&mut self, step: u64) {
        if let Some(tiers) = &mut self.tiers {
            tiers.begin(step);
        }
    }

    /// Planning of a step ends: its copies go to `copies`, which is empty.
    pub fn take_copies(&mut self, copies: &mut Copies) {
        if let Some(tiers) = &mut self.tiers {
            // Blocks that are leased again may be written by this very step, after its saves.
            tiers.write_through(|block| self.tree.identity(block).filter(|_| self.pool.refs(block) == 0));
            tiers.take_copies(copies);
        }
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
                let oldest = self.lru.front()?;
                if let (Some(tiers), Some(hash)) = (&mut self.tiers, self.tree.identity(oldest)) {
                    tiers.evict(oldest, hash);
                }
                self.forget_leaf(oldest);
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
                    self.lru.remove(twin, self.pins.contains(twin));
                }
                lease.blocks[at] = twin;
                self.settling.push(own);
                exchanged = exchanged.or(Some(at));
            } else {
                self.events.entered(own, step);
            }
            lease.cached += 1;
        }
        exchanged
    }

    /// What `step` and those before it compute is there from now on.
    pub fn committed(&mut self, step: u64) {
        self.events.committed(&self.tree, step);
    }

    /// What entered and left the prefix cache since the last call; nothing if it
    /// is not collected.
    pub fn take_events(&mut self) -> KvEvents {
        self.events.take()
    }

    /// Pins the first `blocks` blocks of `lease` until `until_ns` at least: while
    /// nobody holds them they are evicted after all others. False if too many
    /// blocks would be pinned. Nothing is pinned that is not in the tree.
    #[must_use]
    pub fn pin(&mut self, lease: &Lease, blocks: usize, until_ns: u64) -> bool {
        match blocks.checked_sub(1).map(|last| lease.blocks[last]) {
            Some(tip) if self.tree.contains(tip) => self.pins.pin(&self.tree, tip, until_ns.max(1)),
            _ => true,
        }
    }

    /// Ends the pins whose time is at or before `now_ns`.
    pub fn expire(&mut self, now_ns: u64) {
        while let Some(block) = self.pins.expire(&self.tree, now_ns) {
            if self.pool.refs(block) == 0 {
                self.lru.remove(block, true);
                self.lru.push_back(block, false);
            }
        }
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
                if let (Some(tiers), Some(hash)) = (&mut self.tiers, self.tree.identity(leaf)) {
                    tiers.forget(&hash);
                }
                self.forget_leaf(leaf);
            }
        }
    }

    /// Takes all blocks out of the tree. True if nobody held one of them.
    pub fn forget_all(&mut self) -> bool {
        self.events.all_leave();
        while let Some(block) = self.lru.front() {
            self.forget_leaf(block);
        }
        let unused = self.tree.members().next().is_none();
        self.tree.clear();
        self.pins.clear();
        if let Some(tiers) = &mut self.tiers {
            tiers.clear();
        }
        unused
    }

    /// The device's memory is gone; what the tiers below have stays. Leases that
    /// are out are void and must be dropped, not released.
    pub fn reset(&mut self) {
        self.events.all_leave();
        let events = std::mem::replace(&mut self.events, EventLog::new(0, false));
        let mut tiers = self.tiers.take();
        if let Some(tiers) = &mut tiers {
            tiers.recover();
        }
        *self = Self { events, tiers, ..Self::new(self.config) };
    }

    /// The identity of `last`, or of what is before the first block.
    fn identity_before(&self, salt: u64, last: Option<u32>) -> impl FnOnce() -> BlockHash + use<> {
        let identity = last.and_then(|last| self.tree.identity(last));
        move || identity.unwrap_or_else(|| BlockHash::root(salt))
    }

    fn release_block(&mut self, block: u32) {
        if self.pool.release(block) {
            if self.tree.contains(block) {
                self.lru.push_back(block, self.pins.contains(block));
                if let Some(tiers) = &mut self.tiers {
                    tiers.unleased(block);
                }
            } else {
                self.pool.give_back(block);
            }
        }
    }

    fn forget_leaf(&mut self, block: u32) {
        if self.pool.refs(block) == 0 {
            self.lru.remove(block, self.pins.contains(block));
            self.pool.give_back(block);
        }
        self.pins.unpin(&self.tree, block);
        self.events.leaves(&self.tree, block);
        self.tree.remove_leaf(block);
    }

    pub(super) fn parts(&self) -> Parts<'_> {
        let Self { pool, tree, lru, pins, settling, tiers, .. } = self;
        Parts { pool, tree, lru, pins, settling, tiers: tiers.as_ref() }
    }
}

/// The blocks of `tokens` that need not be computed if they are found: all that
/// are full, but one token is left to compute.
fn blocks_to_read(tokens: &[Token], block_size: usize) -> std::slice::ChunksExact<'_, Token> {
    tokens[..tokens.len().saturating_sub(1)].chunks_exact(block_size)
}
