//! The manager against an oracle that stores whole paths in an ordered map and
//! looks through all of them for everything.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;

use super::check::check;
use super::events::KvEvent;
use super::identity::BlockHash;
use super::lease::Lease;
use super::manager::{KvConfig, KvManager};
use crate::ids::{BlockId, Token};

/// Salt and tokens from the start of the sequence to the end of the block.
pub(super) type Path = (u64, Vec<Token>);

#[derive(Clone, Debug)]
struct Entry {
    block: u64,
    step: u64,
    released: u64,
    /// 0 is not pinned.
    pinned_until: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Holder {
    pub(super) salt: u64,
    pub(super) tokens: Vec<Token>,
    pub(super) blocks: Vec<u64>,
    pub(super) cached: usize,
    pub(super) sealed: bool,
}

/// Blocks have names that are never reused, so a stale one is told apart.
#[derive(Debug)]
pub(super) struct Oracle {
    block_size: usize,
    total: usize,
    max_pinned: usize,
    tree: BTreeMap<Path, Entry>,
    pub(super) holders: BTreeMap<usize, Holder>,
    pub(super) settling: Vec<u64>,
    names: u64,
    clock: u64,
}

impl Oracle {
    pub(super) fn new(block_size: usize, total: usize, max_pinned: usize) -> Self {
        Self {
            block_size,
            total,
            max_pinned,
            tree: BTreeMap::new(),
            holders: BTreeMap::new(),
            settling: Vec::new(),
            names: 0,
            clock: 0,
        }
    }

    pub(super) fn block_size(&self) -> usize {
        self.block_size
    }

    pub(super) fn total(&self) -> usize {
        self.total
    }

    pub(super) fn contains(&self, path: &Path) -> bool {
        self.tree.contains_key(path)
    }

    /// The name of the block at the end of a path that is in the tree.
    pub(super) fn block(&self, path: &Path) -> u64 {
        self.tree[path].block
    }

    pub(super) fn path(&self, holder: &Holder, blocks: usize) -> Path {
        (holder.salt, holder.tokens[..blocks * self.block_size].to_vec())
    }

    pub(super) fn held(&self) -> BTreeSet<u64> {
        let blocks = self.holders.values().flat_map(|holder| holder.blocks.iter().copied());
        blocks.chain(self.settling.iter().copied()).collect()
    }

    fn cached(&self) -> usize {
        let held = self.held();
        self.tree.values().filter(|entry| !held.contains(&entry.block)).count()
    }

    pub(super) fn available(&self) -> usize {
        self.total - self.held().len()
    }

    /// Names of the leading blocks that `step` can read, and whether the next
    /// one is being computed.
    pub(super) fn lookup(&self, holder: &Holder, step: u64) -> (Vec<u64>, bool) {
        let mut found = Vec::new();
        for blocks in 1..=(holder.tokens.len() - 1) / self.block_size {
            match self.tree.get(&self.path(holder, blocks)) {
                None => break,
                Some(entry) if entry.step == step => return (found, true),
                Some(entry) => found.push(entry.block),
            }
        }
        (found, false)
    }

    fn take(&mut self) -> u64 {
        if self.held().len() + self.cached() == self.total {
            let held = self.held();
            let is_leaf = |path: &Path| !self.tree.keys().any(|other| is_below(other, path));
            let evictable =
                self.tree.iter().filter(|(path, entry)| !held.contains(&entry.block) && is_leaf(path));
            let oldest = evictable
                .min_by_key(|(_, entry)| (entry.pinned_until > 0, entry.released))
                .map(|(path, _)| path.clone());
            self.tree.remove(&oldest.unwrap());
        }
        self.names += 1;
        self.names
    }

    pub(super) fn grow(&mut self, id: usize, blocks: usize) -> bool {
        let missing = blocks.saturating_sub(self.holders[&id].blocks.len());
        if missing > self.available() {
            return false;
        }
        for _ in 0..missing {
            let block = self.take();
            self.holders.get_mut(&id).unwrap().blocks.push(block);
        }
        true
    }

    pub(super) fn cache_full(&mut self, id: usize, computed: usize, step: u64) {
        let mut holder = self.holders[&id].clone();
        while !holder.sealed && (holder.cached + 1) * self.block_size <= computed {
            let at = holder.cached;
            let in_tree = |blocks: usize| self.tree.get(&self.path(&holder, blocks));
            if at > 0 && in_tree(at).is_none_or(|entry| entry.block != holder.blocks[at - 1]) {
                holder.sealed = true;
                break;
            }
            if let Some(twin) = in_tree(at + 1).map(|entry| entry.block) {
                self.settling.push(std::mem::replace(&mut holder.blocks[at], twin));
            } else {
                let entry = Entry { block: holder.blocks[at], step, released: 0, pinned_until: 0 };
                self.tree.insert(self.path(&holder, at + 1), entry);
            }
            holder.cached += 1;
        }
        self.holders.insert(id, holder);
    }

    pub(super) fn release(&mut self, id: usize) {
        let mut holder = self.holders.remove(&id).unwrap();
        while let Some(block) = holder.blocks.pop() {
            self.clock += 1;
            if !self.held().contains(&block)
                && let Some(entry) = self.tree.values_mut().find(|entry| entry.block == block)
            {
                entry.released = self.clock;
            }
        }
    }

    fn pin(&mut self, id: usize, blocks: usize, until: u64) -> bool {
        let holder = self.holders[&id].clone();
        let path = |blocks| self.path(&holder, blocks);
        let is_own = |entry: &Entry| entry.block == holder.blocks[blocks - 1];
        if blocks == 0 || !self.tree.get(&path(blocks)).is_some_and(is_own) {
            return true;
        }
        let paths: Vec<Path> = (1..=blocks).map(path).collect();
        let more = paths.iter().filter(|path| self.tree[*path].pinned_until == 0).count();
        if self.pinned() + more > self.max_pinned {
            return false;
        }
        for path in paths {
            let entry = self.tree.get_mut(&path).unwrap();
            entry.pinned_until = entry.pinned_until.max(until);
        }
        true
    }

    fn pinned(&self) -> usize {
        self.tree.values().filter(|entry| entry.pinned_until > 0).count()
    }

    /// Children before parents, then who is over first, then by block number.
    fn expire(&mut self, now: u64, real: &HashMap<u64, BlockId>) {
        loop {
            let has_pinned_below = |path: &Path| {
                self.tree.iter().any(|(other, entry)| entry.pinned_until > 0 && is_below(other, path))
            };
            let over = self
                .tree
                .iter()
                .filter(|(path, entry)| (1..=now).contains(&entry.pinned_until) && !has_pinned_below(path));
            let first = over.min_by_key(|(_, entry)| (entry.pinned_until, real[&entry.block].0));
            let Some(path) = first.map(|(path, _)| path.clone()) else { break };
            self.clock += 1;
            let clock = self.clock;
            let entry = self.tree.get_mut(&path).unwrap();
            entry.pinned_until = 0;
            entry.released = clock;
        }
    }

    pub(super) fn forget_all(&mut self) {
        self.tree.clear();
    }

    pub(super) fn forget(&mut self, id: usize) {
        for block in &self.holders[&id].blocks {
            let path =
                self.tree.iter().find(|(_, entry)| entry.block == *block).map(|(path, _)| path.clone());
            if let Some(path) = path {
                self.tree.retain(|other, _| other.0 != path.0 || !other.1.starts_with(&path.1));
            }
        }
    }
}

fn is_below(other: &Path, path: &Path) -> bool {
    other.0 == path.0 && other.1.len() > path.1.len() && other.1.starts_with(&path.1)
}

#[derive(Clone, Debug)]
enum Op {
    Start { salt: u64, tokens: Vec<Token> },
    Extend { which: usize, tokens: Vec<Token> },
    Cache { which: usize, share: f64 },
    Pin { which: usize, share: f64, until: u64 },
    Expire { after: u64 },
    Release { which: usize },
    Forget { which: usize },
    ForgetAll,
    NextStep,
}

fn op() -> impl Strategy<Value = Op> {
    let tokens = |most| prop::collection::vec(0..2u32, 1..most);
    let which = 0..usize::MAX;
    prop_oneof![
        6 => (0..2u64, tokens(16)).prop_map(|(salt, tokens)| Op::Start { salt, tokens }),
        4 => (which.clone(), tokens(6)).prop_map(|(which, tokens)| Op::Extend { which, tokens }),
        8 => (which.clone(), 0.0..1.0f64).prop_map(|(which, share)| Op::Cache { which, share: share * 1.5 }),
        5 => (which.clone(), 0.0..1.0f64, 1..40u64)
            .prop_map(|(which, share, until)| Op::Pin { which, share, until }),
        2 => (0..12u64).prop_map(|after| Op::Expire { after }),
        5 => which.clone().prop_map(|which| Op::Release { which }),
        1 => which.prop_map(|which| Op::Forget { which }),
        1 => Just(Op::ForgetAll),
        6 => Just(Op::NextStep),
    ]
}

/// Both, and which real block each of the oracle's names stands for.
struct Pair {
    kv: KvManager,
    leases: BTreeMap<usize, Lease>,
    oracle: Oracle,
    real: HashMap<u64, BlockId>,
    step: u64,
    committed: u64,
    now: u64,
    started: usize,
    /// What one who reads the events takes to be in the cache.
    routed: BTreeSet<[u8; 32]>,
}

impl Pair {
    fn pick(&self, which: usize) -> Option<usize> {
        let count = self.leases.len();
        (count > 0).then(|| *self.leases.keys().nth(which % count).unwrap())
    }

    fn start(&mut self, salt: u64, tokens: &[Token]) {
        let id = self.started;
        self.started += 1;
        let mut lease = self.kv.lease(salt);
        let mut holder = Holder { salt, tokens: tokens.to_vec(), ..Holder::default() };
        let found = self.kv.match_prefix(&lease, tokens, self.step);
        let (expected, continues) = self.oracle.lookup(&holder, self.step);
        assert_eq!((found.blocks, found.continues), (expected.len(), continues));
        let held = self.oracle.held();
        assert_eq!(found.unleased, expected.iter().filter(|block| !held.contains(block)).count());
        self.kv.lease_match(&mut lease);
        holder.cached = expected.len();
        holder.blocks = expected;
        self.oracle.holders.insert(id, holder);
        self.leases.insert(id, lease);
        self.grow(id);
    }

    fn grow(&mut self, id: usize) {
        let blocks = self.kv.blocks_for(self.oracle.holders[&id].tokens.len());
        let lease = self.leases.get_mut(&id).unwrap();
        let grown = self.kv.grow(lease, 0, blocks);
        assert_eq!(grown, self.oracle.grow(id, blocks));
        if grown {
            for (at, name) in self.oracle.holders[&id].blocks.iter().enumerate() {
                self.real.entry(*name).or_insert(lease.block(at));
            }
        } else {
            self.release(id);
        }
    }

    fn release(&mut self, id: usize) {
        self.kv.release(self.leases.get_mut(&id).unwrap());
        self.leases.remove(&id);
        self.oracle.release(id);
    }

    fn settle(&mut self) {
        self.kv.settle();
        self.oracle.settling.clear();
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Start { salt, tokens } => self.start(*salt, tokens),
            Op::Extend { which, tokens } => {
                if let Some(id) = self.pick(*which) {
                    self.oracle.holders.get_mut(&id).unwrap().tokens.extend(tokens);
                    self.grow(id);
                }
            }
            Op::Cache { which, share } => {
                if let Some(id) = self.pick(*which) {
                    let tokens = self.oracle.holders[&id].tokens.clone();
                    let computed = ((tokens.len() as f64 * share) as usize).min(tokens.len());
                    self.kv.cache_full(self.leases.get_mut(&id).unwrap(), &tokens, computed, self.step);
                    self.oracle.cache_full(id, computed, self.step);
                }
            }
            Op::Pin { which, share, until } => {
                if let Some(id) = self.pick(*which) {
                    let lease = &self.leases[&id];
                    let blocks = (lease.cached() as f64 * share).round() as usize;
                    let pinned = self.kv.pin(lease, blocks, self.now + until);
                    assert_eq!(pinned, self.oracle.pin(id, blocks, self.now + until));
                }
            }
            Op::Expire { after } => {
                self.now += after;
                self.kv.expire(self.now);
                self.oracle.expire(self.now, &self.real);
            }
            Op::Release { which } => {
                if let Some(id) = self.pick(*which) {
                    self.release(id);
                }
            }
            Op::Forget { which } => {
                if let Some(id) = self.pick(*which) {
                    self.kv.forget(&self.leases[&id]);
                    self.oracle.forget(id);
                }
            }
            Op::ForgetAll => {
                let held = self.oracle.held();
                let unused = !self.oracle.tree.values().any(|entry| held.contains(&entry.block));
                assert_eq!(self.kv.forget_all(), unused);
                self.oracle.forget_all();
            }
            Op::NextStep => {
                self.settle();
                self.kv.committed(self.step);
                self.committed = self.step;
                self.step += 1;
            }
        }
    }

    fn read_events(&mut self) {
        let events = self.kv.take_events();
        assert!(!events.lost);
        for event in events.events {
            match event {
                KvEvent::Stored { block, parent, salt, tokens } => {
                    let parent = parent.inspect(|parent| assert!(self.routed.contains(&parent.0)));
                    assert_eq!(parent.unwrap_or(BlockHash::root(salt)).child(&tokens), block);
                    assert!(self.routed.insert(block.0));
                }
                KvEvent::Removed { block } => assert!(self.routed.remove(&block.0)),
                KvEvent::Cleared => self.routed.clear(),
            }
        }
        let readable = self.oracle.tree.iter().filter(|(_, entry)| entry.step <= self.committed);
        let identity = |(salt, tokens): &Path| {
            let blocks = tokens.chunks(self.oracle.block_size);
            blocks.fold(BlockHash::root(*salt), |parent, tokens| parent.child(tokens)).0
        };
        assert_eq!(self.routed, readable.map(|(path, _)| identity(path)).collect());
    }

    fn compare(&mut self) {
        self.read_events();
        check(&self.kv, self.leases.values()).unwrap();
        assert_eq!(self.kv.cached(), self.oracle.cached());
        assert_eq!(self.kv.available(), self.oracle.available());
        assert_eq!(self.kv.pinned(), self.oracle.pinned());
        assert_eq!(self.kv.leased(), self.oracle.held().len());
        for (id, lease) in &self.leases {
            let names = &self.oracle.holders[id].blocks;
            assert_eq!(lease.len(), names.len());
            for (at, name) in names.iter().enumerate() {
                assert_eq!(lease.block(at), self.real[name]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_manager_does_what_the_oracle_does(
        block_size in 1..4usize,
        total in 1..24usize,
        share_pinned in 0.0..1.0f64,
        ops in prop::collection::vec(op(), 1..160),
    ) {
        let max_pinned = (total as f64 * share_pinned) as usize;
        let config = KvConfig {
            blocks: total as u32,
            reserve: 0,
            block_size: block_size as u32,
            caching: true,
            max_pinned,
            identities: true,
            events: true,
            tiers: None,
            groups: Vec::new(),
        };
        let mut pair = Pair {
            kv: KvManager::new(config),
            leases: BTreeMap::new(),
            oracle: Oracle::new(block_size, total, max_pinned),
            real: HashMap::new(),
            step: 1,
            committed: 0,
            now: 0,
            started: 0,
            routed: BTreeSet::new(),
        };
        for op in &ops {
            pair.apply(op);
            pair.compare();
        }
        while let Some(id) = pair.pick(0) {
            pair.release(id);
        }
        pair.settle();
        pair.compare();
        prop_assert_eq!(pair.kv.leased(), 0);
    }
}
