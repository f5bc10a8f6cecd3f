//! The one owner of KV blocks.
//!
//! Its own pool is the spine: the layer group of full attention, in which a
//! sequence holds every block from its first token on, and whose blocks are the
//! nodes of the prefix cache. Models without such layers have a spine of blocks
//! without bytes. [`group`](super::group) says what the other groups hold.

use super::events::{EventLog, KvEvents};
use super::evict::EvictionOrder;
use super::group::{Group, GroupConfig};
use super::lease::Lease;
use super::pins::Pins;
use super::pool::BlockPool;
use super::radix::RadixTree;
use super::tiers::{TierConfig, Tiers};
use crate::ids::{BlockId, Token};

/// What a manager is made of.
#[derive(Clone, Debug)]
pub struct KvConfig {
    /// Blocks of the spine on the device.
    pub blocks: u32,
    /// Blocks of it that stay available when a sequence joins others.
    pub reserve: usize,
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
    /// Layer groups beside the spine; they exclude tiers.
    pub groups: Vec<GroupConfig>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct KvManager {
    pub(super) config: KvConfig,
    pub(super) block_size: usize,
    pub(super) caching: bool,
    pub(super) pool: BlockPool,
    pub(super) tree: RadixTree,
    pub(super) lru: EvictionOrder,
    pub(super) pins: Pins,
    pub(super) events: EventLog,
    pub(super) tiers: Option<Tiers>,
    pub(super) groups: Vec<Group>,
    /// The last match, for `lease_match`.
    pub(super) matched: Vec<u32>,
    /// Leases that end when the step is settled: this step still writes there.
    pub(super) settling: Vec<u32>,
}

impl KvManager {
    /// A manager of free blocks.
    pub fn new(config: KvConfig) -> Self {
        let (blocks, block_size) = (config.blocks as usize, config.block_size as usize);
        Self {
            block_size,
            caching: config.caching,
            pool: BlockPool::new(config.blocks),
            tree: RadixTree::new(blocks, block_size, config.identities),
            lru: EvictionOrder::new(blocks),
            pins: Pins::new(blocks, config.max_pinned),
            events: EventLog::new(blocks, config.events),
            tiers: config.tiers.map(|tiers| Tiers::new(tiers, blocks)),
            groups: config.groups.iter().map(|&group| Group::new(group, blocks, block_size)).collect(),
            matched: Vec::new(),
            settling: Vec::new(),
            config,
        }
    }

    /// An empty lease under a salt.
    pub fn lease(&self, salt: u64) -> Lease {
        Lease::new(salt, self.groups.len())
    }

    /// Makes room in `lease` for a sequence of `blocks` blocks, so that growing does
    /// not allocate.
    pub fn reserve(&self, lease: &mut Lease, blocks: usize) {
        lease.blocks.reserve_exact(blocks.saturating_sub(lease.blocks.len()));
        for (group, held) in self.groups.iter().zip(&mut lease.groups) {
            group.reserve(held, blocks);
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

    /// Extends `lease` to `blocks` blocks, of a window as many as it needs to go on at
    /// `position`, evicting cached ones as needed; false, and nothing changes, if so
    /// many are not available.
    #[inline]
    #[must_use]
    pub fn grow(&mut self, lease: &mut Lease, position: usize, blocks: usize) -> bool {
        // Of most tokens there is nothing to do.
        (blocks <= lease.len() && !self.has_groups()) || self.grow_by_some(lease, position, blocks)
    }

    fn grow_by_some(&mut self, lease: &mut Lease, position: usize, blocks: usize) -> bool {
        let missing = blocks.saturating_sub(lease.len());
        if missing > self.available() || (self.has_groups() && self.lacks(lease, position, blocks)) {
            return false;
        }
        let evicted = missing.saturating_sub(self.pool.free().len());
        if evicted > 1 {
            self.tree.prepare_removal(self.lru.iter().take(evicted).map(|(block, _)| block));
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
        if self.has_groups() {
            for (group, held) in self.groups.iter_mut().zip(&mut lease.groups) {
                group.hold(held, position, blocks, &self.pins);
            }
        }
        true
    }

    /// True if a group beside the spine has too few blocks for [`Self::grow`].
    #[cold]
    fn lacks(&self, lease: &Lease, position: usize, blocks: usize) -> bool {
        let mut groups = self.groups.iter().zip(&lease.groups);
        groups.any(|(group, held)| group.missing(held, position, blocks) > group.available())
    }

    /// Where a step may end that computes a sequence from `start` to `end`.
    pub fn step_end(&self, lease: &Lease, start: usize, end: usize) -> usize {
        let groups = self.groups.iter().zip(&lease.groups);
        groups.fold(end, |end, (group, held)| group.step_end(held, start, end))
    }

    /// Takes what the groups beside the spine need for a step that computes a sequence
    /// up to `end`, which [`Self::step_end`] allows, and calls `tell` with group,
    /// index and block of the table entries that are new to the workers.
    pub fn widen(&mut self, lease: &mut Lease, end: usize, mut tell: impl FnMut(usize, usize, BlockId)) {
        let blocks = end.div_ceil(self.block_size);
        for (at, (group, held)) in self.groups.iter_mut().zip(&mut lease.groups).enumerate() {
            group.widen(held, blocks, &self.pins);
            group.tell(held, blocks, |index, block| tell(at + 1, index, BlockId(block)));
        }
    }

    /// True if there are groups beside the spine.
    pub fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Gives back what a sequence does not need that goes on at `position`.
    pub fn slide(&mut self, lease: &mut Lease, position: usize) {
        for (group, held) in self.groups.iter_mut().zip(&mut lease.groups) {
            group.slide(held, position, &self.pins);
        }
    }

    /// The largest share of its blocks that is leased in a group.
    pub fn usage(&self) -> f64 {
        let share = |available: usize, total: usize| 1.0 - available as f64 / total as f64;
        let spine = share(self.available(), self.total());
        self.groups.iter().map(|group| share(group.available(), group.total())).fold(spine, f64::max)
    }

    /// Puts the blocks of `lease` that are full into the tree, where the first
    /// `scheduled` tokens are computed by `step` or earlier and `tokens` are known.
    /// A block whose content the tree already has is exchanged for the tree's;
    /// returns the first index where that happened.
    #[inline]
    pub fn cache_full(
        &mut self,
        lease: &mut Lease,
        tokens: &[Token],
        scheduled: usize,
        step: u64,
    ) -> Option<usize> {
        // Most tokens fill no block.
        let is_full = (lease.cached + 1) * self.block_size <= scheduled.min(tokens.len());
        if is_full { self.cache_some(lease, tokens, scheduled, step) } else { None }
    }

    fn cache_some(
        &mut self,
        lease: &mut Lease,
        tokens: &[Token],
        scheduled: usize,
        step: u64,
    ) -> Option<usize> {
        let first = lease.cached;
        let mut parent = first.checked_sub(1).map(|before| lease.blocks[before]);
        lease.sealed |= parent.is_some_and(|parent| !self.tree.contains(parent));
        if lease.sealed || !self.caching {
            return None;
        }
        let tokens = &tokens[first * self.block_size..scheduled.min(tokens.len())];
        self.tree.prepare(lease.salt, parent, tokens);
        let mut exchanged = None;
        for (place, content) in tokens.chunks_exact(self.block_size).enumerate() {
            let at = first + place;
            let own = lease.blocks[at];
            if let Some(twin) = self.tree.insert(lease.salt, parent, content, (place, own), step) {
                if self.pool.retain(twin) {
                    self.lru.remove(twin, self.pins.contains(twin));
                }
                lease.blocks[at] = twin;
                self.settling.push(own);
                exchanged = exchanged.or(Some(at));
            } else {
                self.events.entered(own, step);
            }
            for (group, held) in self.groups.iter_mut().zip(&lease.groups) {
                group.enter(held, lease.blocks[at], at, scheduled, step);
            }
            parent = Some(lease.blocks[at]);
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
        let Some(&tip) = lease.blocks[..blocks].last().filter(|&&tip| self.tree.contains(tip)) else {
            return true;
        };
        let known = lease.blocks[..blocks].partition_point(|&block| self.pins.contains(block));
        let pinned = self.pins.pin(&self.tree, tip, until_ns.max(1));
        for &block in lease.blocks[known..blocks].iter().filter(|_| pinned) {
            self.groups.iter_mut().for_each(|group| group.repin(block, true));
        }
        pinned
    }

    /// Ends the pins whose time is at or before `now_ns`.
    pub fn expire(&mut self, now_ns: u64) {
        while let Some(block) = self.pins.expire(&self.tree, now_ns) {
            self.groups.iter_mut().for_each(|group| group.repin(block, false));
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
        for (group, held) in self.groups.iter_mut().zip(&mut lease.groups) {
            group.release(held, &self.pins);
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
        self.groups.iter_mut().for_each(|group| group.all_leave(&self.pins));
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
        *self = Self { events, tiers, ..Self::new(self.config.clone()) };
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
        self.groups.iter_mut().for_each(|group| group.leave(block, &self.pins));
        self.pins.unpin(&self.tree, block);
        self.events.leaves(&self.tree, block);
        self.tree.remove_leaf(block);
    }

    /// True if `lease` has what its last token read and the next one needs, where
    /// `scheduled` tokens are computed or planned.
    pub fn serves(&self, lease: &Lease, scheduled: usize) -> bool {
        lease.len() * self.block_size >= scheduled
            && self.groups.iter().zip(&lease.groups).all(|(group, held)| group.serves(held, scheduled))
    }
}
