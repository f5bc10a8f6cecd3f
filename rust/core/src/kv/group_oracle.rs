//! Layer groups against an oracle of ordered maps, on top of the spine's [`oracle`](super::oracle): which prefix
//! can be used, who holds and gets which block, what is given up, and what is in the blocks that are read.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;

use super::check::check;
use super::group::GroupConfig;
use super::index::NONE;
use super::keep::Keep;
use super::lease::Lease;
use super::manager::{KvConfig, KvManager};
use super::oracle::{Holder, Oracle, Path};
use crate::ids::{BlockId, Token};

#[derive(Clone, Copy, Debug)]
struct Companion {
    block: u64,
    step: u64,
}

/// What a sequence holds.
#[derive(Clone, Debug, Default)]
struct Stay {
    first: usize,
    blocks: Vec<u64>,
    /// A step was planned with these blocks.
    told: bool,
}

/// One group. Blocks have names that are never reused.
#[derive(Debug)]
struct Naive {
    keep: Keep,
    block_size: usize,
    total: usize,
    companions: BTreeMap<Path, Companion>,
    stays: BTreeMap<usize, Stay>,
    /// When nobody held a block any more.
    released: BTreeMap<u64, u64>,
    names: u64,
    clock: u64,
}

impl Naive {
    fn held(&self) -> BTreeSet<u64> {
        self.stays.values().flat_map(|stay| stay.blocks.iter().copied()).collect()
    }

    fn available(&self) -> usize {
        self.total - self.held().len()
    }

    /// The block of the oldest token that the one at `position` reads.
    fn first(&self, position: usize) -> usize {
        match self.keep {
            Keep::Last(window) => (position + 1).saturating_sub(window as usize) / self.block_size,
            Keep::State { .. } | Keep::Fixed(_) => 0,
        }
    }

    /// Of a window: where the blocks end that a sequence of `blocks` blocks must have at `position`.
    fn end(&self, position: usize, blocks: usize) -> usize {
        let Keep::Last(window) = self.keep else { return 0 };
        let far = window as usize..window as usize + self.block_size;
        let most = far.map(|at| at / self.block_size + 1 - self.first(at)).max().unwrap();
        blocks.min(self.first(position) + most)
    }

    /// What a sequence needs that goes on after `blocks` blocks, if that is there for `step` to read.
    fn needed(&self, path: impl Fn(usize) -> Path, blocks: usize, step: u64) -> Option<Vec<u64>> {
        let readable = |companion: &&Companion| companion.step != step;
        let after =
            |blocks| self.companions.get(&path(blocks)).filter(readable).map(|companion| companion.block);
        match self.keep {
            Keep::Last(_) => (self.first(blocks * self.block_size)..blocks).map(|at| after(at + 1)).collect(),
            Keep::State { .. } if blocks > 0 => after(blocks).map(|block| vec![block]),
            Keep::State { .. } | Keep::Fixed(_) => Some(Vec::new()),
        }
    }

    fn admits(&self, needed: &[u64], matched: usize, blocks: usize) -> bool {
        let mut held = self.held();
        let missing = match self.keep {
            Keep::Last(_) => self.end(matched * self.block_size, blocks).saturating_sub(matched),
            Keep::State { .. } => usize::from(needed.iter().all(|block| held.contains(block))),
            Keep::Fixed(own) => own as usize,
        };
        held.extend(needed);
        missing <= self.total - held.len()
    }

    fn missing(&self, id: usize, position: usize, blocks: usize) -> usize {
        let stay = &self.stays[&id];
        match self.keep {
            Keep::Last(_) => self.end(position, blocks).saturating_sub(stay.first + stay.blocks.len()),
            Keep::State { .. } => {
                let holders =
                    |block: &u64| self.stays.values().filter(|stay| stay.blocks.contains(block)).count();
                usize::from(stay.blocks.last().is_none_or(|block| holders(block) > 1))
            }
            Keep::Fixed(own) => own as usize - stay.blocks.len(),
        }
    }

    fn hold(&mut self, id: usize, position: usize, blocks: usize) {
        let mut missing = self.missing(id, position, blocks);
        let last = self.stays[&id].blocks.last().copied();
        let is_snapshot = self.companions.values().any(|companion| Some(companion.block) == last);
        if matches!(self.keep, Keep::State { .. }) && missing == 0 && is_snapshot {
            if self.available() == 0 {
                self.companions.retain(|_, companion| Some(companion.block) != last);
            } else {
                missing = 1;
            }
        }
        (0..missing).for_each(|_| self.take(id));
    }

    fn take(&mut self, id: usize) {
        let held = self.held();
        let cached = self.companions.iter().filter(|(_, companion)| !held.contains(&companion.block));
        if held.len() + cached.clone().count() == self.total {
            let oldest = cached.min_by_key(|(_, companion)| self.released[&companion.block]);
            let path = oldest.unwrap().0.clone();
            self.companions.remove(&path);
        }
        self.names += 1;
        let stay = self.stays.get_mut(&id).unwrap();
        stay.blocks.push(self.names);
        stay.told = false;
    }

    fn step_end(&self, id: usize, start: usize, end: usize) -> usize {
        let stay = &self.stays[&id];
        match self.keep {
            Keep::Last(_) => end.min((stay.first + stay.blocks.len() + self.available()) * self.block_size),
            Keep::State { every } => {
                let stride = every as usize * self.block_size;
                (start + 1..=end).rev().find(|end| end.is_multiple_of(stride)).unwrap_or(end)
            }
            Keep::Fixed(_) => end,
        }
    }

    fn widen(&mut self, id: usize, end: usize) {
        if matches!(self.keep, Keep::Last(_)) {
            let stay = &self.stays[&id];
            (stay.first + stay.blocks.len()..end.div_ceil(self.block_size)).for_each(|_| self.take(id));
        }
        self.stays.get_mut(&id).unwrap().told = true;
    }

    fn slide(&mut self, id: usize, position: usize) {
        let first = self.first(position);
        let stay = self.stays.get_mut(&id).unwrap();
        let gone = match self.keep {
            Keep::Last(_) => (first - stay.first).min(stay.blocks.len()),
            Keep::State { .. } => usize::from(stay.told && stay.blocks.len() == 2),
            Keep::Fixed(_) => 0,
        };
        let gone: Vec<u64> = stay.blocks.drain(..gone).collect();
        stay.first = first;
        self.released(&gone);
    }

    fn release(&mut self, id: usize) {
        let stay = self.stays.remove(&id).unwrap();
        self.released(&stay.blocks);
    }

    fn released(&mut self, blocks: &[u64]) {
        let held = self.held();
        for &block in blocks.iter().filter(|block| !held.contains(block)) {
            self.clock += 1;
            self.released.insert(block, self.clock);
        }
    }

    /// The sequence's first `blocks` blocks are those of `path`, in the tree since this step.
    fn enter(&mut self, id: usize, path: Path, scheduled: usize, step: u64) {
        let stay = &self.stays[&id];
        let blocks = path.1.len() / self.block_size;
        let block = match self.keep {
            Keep::Last(_) => (blocks - 1).checked_sub(stay.first).and_then(|place| stay.blocks.get(place)),
            Keep::State { every } => {
                let is_due = blocks.is_multiple_of(every as usize) && scheduled == path.1.len();
                stay.blocks.last().filter(|_| is_due)
            }
            Keep::Fixed(_) => None,
        };
        let Some(&block) = block else { return };
        if self.companions.values().all(|companion| companion.block != block) {
            self.companions.entry(path).or_insert(Companion { block, step });
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Start {
        salt: u64,
        tokens: Vec<Token>,
    },
    /// A step computes so many tokens of a sequence, if it may.
    Step {
        which: usize,
        len: usize,
    },
    Extend {
        which: usize,
        tokens: Vec<Token>,
    },
    Release {
        which: usize,
    },
    Forget {
        which: usize,
    },
    ForgetAll,
    NextStep,
}

fn op() -> impl Strategy<Value = Op> {
    let tokens = |most| prop::collection::vec(0..2u32, 1..most);
    let which = 0..usize::MAX;
    prop_oneof![
        6 => (0..2u64, tokens(24)).prop_map(|(salt, tokens)| Op::Start { salt, tokens }),
        16 => (which.clone(), 1..12usize).prop_map(|(which, len)| Op::Step { which, len }),
        6 => (which.clone(), tokens(4)).prop_map(|(which, tokens)| Op::Extend { which, tokens }),
        5 => which.clone().prop_map(|which| Op::Release { which }),
        1 => which.prop_map(|which| Op::Forget { which }),
        1 => Just(Op::ForgetAll),
        10 => Just(Op::NextStep),
    ]
}

/// The manager, the oracles, and a device that remembers what its blocks hold.
#[derive(Debug)]
struct Pair {
    kv: KvManager,
    leases: BTreeMap<usize, Lease>,
    spine: Oracle,
    groups: Vec<Naive>,
    /// Which block of the spine, and of each group, a name stands for.
    real: HashMap<u64, BlockId>,
    group_real: HashMap<(usize, u64), u32>,
    /// By sequence: tokens computed, and the step that did it last.
    scheduled: BTreeMap<usize, (usize, u64)>,
    /// By sequence, group and index.
    tables: HashMap<(usize, usize, usize), u32>,
    /// By group, block and place in the block: the sequence up to the token, or after which the state is.
    cells: HashMap<(usize, u32, usize), Path>,
    step: u64,
    started: usize,
}

impl Pair {
    fn new(block_size: usize, total: usize, groups: &[GroupConfig]) -> Self {
        let naive = |config: &GroupConfig| Naive {
            keep: config.keep,
            block_size,
            total: config.blocks as usize,
            companions: BTreeMap::new(),
            stays: BTreeMap::new(),
            released: BTreeMap::new(),
            names: 0,
            clock: 0,
        };
        Self {
            kv: KvManager::new(KvConfig {
                blocks: total as u32,
                reserve: 0,
                block_size: block_size as u32,
                caching: true,
                max_pinned: 0,
                identities: false,
                events: false,
                tiers: None,
                groups: groups.to_vec(),
            }),
            leases: BTreeMap::new(),
            spine: Oracle::new(block_size, total, 0),
            groups: groups.iter().map(naive).collect(),
            real: HashMap::new(),
            group_real: HashMap::new(),
            scheduled: BTreeMap::new(),
            tables: HashMap::new(),
            cells: HashMap::new(),
            step: 1,
            started: 0,
        }
    }

    fn pick(&self, which: usize) -> Option<usize> {
        let count = self.leases.len();
        (count > 0).then(|| *self.leases.keys().nth(which % count).unwrap())
    }

    fn start(&mut self, salt: u64, tokens: &[Token]) {
        let Self { kv, spine, groups, step, .. } = self;
        let mut lease = kv.lease(salt);
        let mut holder = Holder { salt, tokens: tokens.to_vec(), ..Holder::default() };
        let found = kv.match_prefix(&lease, tokens, *step);
        let (in_spine, continues) = spine.lookup(&holder, *step);
        let needed = |blocks: usize| -> Option<Vec<Vec<u64>>> {
            groups.iter().map(|group| group.needed(|n| spine.path(&holder, n), blocks, *step)).collect()
        };
        let longest = (0..=in_spine.len()).rev().find(|&blocks| needed(blocks).is_some()).unwrap();
        assert_eq!((found.blocks, found.continues), (longest, continues));

        let (needed, blocks) = (needed(longest).unwrap(), kv.blocks_for(tokens.len()));
        let mut held = spine.held();
        held.extend(&in_spine[..longest]);
        let admits = blocks - longest <= spine.total() - held.len()
            && groups.iter().zip(&needed).all(|(group, needed)| group.admits(needed, longest, blocks));
        assert_eq!(kv.admits(blocks, found, false), admits);
        if continues || !admits {
            return;
        }
        let id = self.started;
        self.started += 1;
        self.kv.lease_match(&mut lease);
        holder.cached = longest;
        holder.blocks = in_spine[..longest].to_vec();
        self.spine.holders.insert(id, holder);
        let position = longest * self.spine.block_size();
        for (group, blocks) in self.groups.iter_mut().zip(needed) {
            let first = group.first(position);
            group.stays.insert(id, Stay { first, blocks, told: false });
        }
        self.leases.insert(id, lease);
        self.scheduled.insert(id, (position, 0));
        assert!(self.grow(id), "who is admitted has room");
    }

    /// Makes room for all tokens of a sequence; false, and it is gone, if there is none.
    fn grow(&mut self, id: usize) -> bool {
        let holder = &self.spine.holders[&id];
        let (position, _) = self.scheduled[&id];
        let blocks = self.kv.blocks_for(holder.tokens.len());
        let fits = blocks.saturating_sub(holder.blocks.len()) <= self.spine.available()
            && self.groups.iter().all(|group| group.missing(id, position, blocks) <= group.available());
        let lease = self.leases.get_mut(&id).unwrap();
        assert_eq!(self.kv.grow(lease, position, blocks), fits);
        if !fits {
            self.release(id);
            return false;
        }
        assert!(self.spine.grow(id, blocks));
        for (at, name) in self.spine.holders[&id].blocks.iter().enumerate() {
            self.real.entry(*name).or_insert(lease.block(at));
        }
        self.leave();
        self.groups.iter_mut().for_each(|group| group.hold(id, position, blocks));
        true
    }

    /// Whose node left the tree has no companion any more.
    fn leave(&mut self) {
        let Self { groups, spine, .. } = self;
        for group in groups {
            group.companions.retain(|path, _| spine.contains(path));
        }
    }

    fn compute(&mut self, id: usize, len: usize) {
        let (start, last_step) = self.scheduled[&id];
        let tokens = self.spine.holders[&id].tokens.clone();
        if last_step == self.step || start == tokens.len() {
            return;
        }
        self.kv.slide(self.leases.get_mut(&id).unwrap(), start);
        self.groups.iter_mut().for_each(|group| group.slide(id, start));
        if !self.grow(id) {
            return;
        }
        let lease = self.leases.get_mut(&id).unwrap();
        let wanted = (start + len).min(tokens.len());
        let end = self.kv.step_end(lease, start, wanted);
        assert_eq!(end, self.groups.iter().fold(wanted, |end, group| group.step_end(id, start, end)));
        assert!(end > start, "every step gets on");
        let tables = &mut self.tables;
        self.kv.widen(lease, end, |group, index, block| {
            tables.insert((id, group - 1, index), block.0);
        });
        self.groups.iter_mut().for_each(|group| group.widen(id, end));
        self.scheduled.insert(id, (end, self.step));
        self.write_and_read(id, &tokens, start..end);

        let cached = self.spine.holders[&id].cached;
        self.kv.cache_full(self.leases.get_mut(&id).unwrap(), &tokens, end, self.step);
        self.spine.cache_full(id, end, self.step);
        let holder = &self.spine.holders[&id];
        for blocks in cached + 1..=holder.cached {
            let path = self.spine.path(holder, blocks);
            self.groups.iter_mut().for_each(|group| group.enter(id, path.clone(), end, self.step));
        }
    }

    /// What a device does with the tokens `computed`: what it reads must be the sequence's own.
    fn write_and_read(&mut self, id: usize, tokens: &[Token], computed: std::ops::Range<usize>) {
        let Self { groups, tables, cells, spine, .. } = self;
        let path = |len: usize| (spine.holders[&id].salt, tokens[..len].to_vec());
        for (number, group) in groups.iter().enumerate() {
            let block = |index: usize| tables[&(id, number, index)];
            match group.keep {
                Keep::Last(window) => {
                    let place = |at: usize| (number, block(at / group.block_size), at % group.block_size);
                    for at in computed.clone() {
                        cells.insert(place(at), path(at + 1));
                    }
                    for at in (computed.start + 1).saturating_sub(window as usize)..computed.end {
                        assert_eq!(cells[&place(at)], path(at + 1), "a window holds its tokens");
                    }
                }
                Keep::State { .. } => {
                    if computed.start > 0 {
                        let state = &cells[&(number, block(0), 0)];
                        assert_eq!(state, &path(computed.start), "a state is the one that was saved");
                    }
                    cells.insert((number, block(1), 0), path(computed.end));
                }
                Keep::Fixed(own) => (0..own as usize).for_each(|index| {
                    let blocks = &self.leases[&id].groups[number].blocks;
                    assert_eq!(block(index), blocks[index], "the workers know all blocks");
                }),
            }
        }
    }

    fn release(&mut self, id: usize) {
        self.kv.release(self.leases.get_mut(&id).unwrap());
        self.leases.remove(&id);
        self.scheduled.remove(&id);
        self.spine.release(id);
        self.groups.iter_mut().for_each(|group| group.release(id));
    }

    fn settle(&mut self) {
        self.kv.settle();
        self.spine.settling.clear();
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Start { salt, tokens } => self.start(*salt, tokens),
            Op::Step { which, len } => {
                if let Some(id) = self.pick(*which) {
                    self.compute(id, *len);
                }
            }
            Op::Extend { which, tokens } => {
                if let Some(id) = self.pick(*which) {
                    self.spine.holders.get_mut(&id).unwrap().tokens.extend(tokens);
                }
            }
            Op::Release { which } => {
                if let Some(id) = self.pick(*which) {
                    self.release(id);
                }
            }
            Op::Forget { which } => {
                if let Some(id) = self.pick(*which) {
                    self.kv.forget(&self.leases[&id]);
                    self.spine.forget(id);
                    self.leave();
                }
            }
            Op::ForgetAll => {
                self.kv.forget_all();
                self.spine.forget_all();
                self.leave();
            }
            Op::NextStep => {
                self.settle();
                self.step += 1;
            }
        }
    }

    fn compare(&mut self) {
        check(&self.kv, self.leases.values()).unwrap();
        assert_eq!(self.kv.available(), self.spine.available());
        for (number, (group, naive)) in self.kv.groups.iter().zip(&self.groups).enumerate() {
            assert_eq!(group.available(), naive.available());
            let mut blocks = BTreeMap::new();
            for (id, lease) in &self.leases {
                let (held, stay) = (&lease.groups[number], &naive.stays[id]);
                assert_eq!((held.first, held.len()), (stay.first, stay.blocks.len()));
                for (block, name) in held.blocks().zip(&stay.blocks) {
                    assert_eq!(*self.group_real.entry((number, *name)).or_insert(block), block);
                    assert_eq!(
                        blocks.insert(block, *name).unwrap_or(*name),
                        *name,
                        "a block has one holder's part"
                    );
                }
            }
            for (path, companion) in &naive.companions {
                let node = self.real[&self.spine.block(path)].0;
                let block = group.companions[node as usize].block;
                assert_eq!(block, self.group_real[&(number, companion.block)]);
            }
            let count = group.companions.iter().filter(|companion| companion.block != NONE).count();
            assert_eq!(count, naive.companions.len());
        }
    }
}

/// Groups that can hold one sequence, if barely.
fn groups(block_size: usize) -> impl Strategy<Value = Vec<GroupConfig>> {
    let config = |keep, blocks: usize| GroupConfig { keep, blocks: blocks as u32, reserve: 0 };
    let window = (1..20u32, 0..10usize).prop_map(move |(window, more)| {
        config(Keep::Last(window), (window as usize - 1).div_ceil(block_size) + 1 + more)
    });
    let state = (1..4u32, 1..8usize).prop_map(move |(every, blocks)| config(Keep::State { every }, blocks));
    let fixed =
        (1..4u32, 0..6usize).prop_map(move |(own, more)| config(Keep::Fixed(own), own as usize + more));
    prop::collection::vec(prop_oneof![3 => window, 3 => state, 1 => fixed], 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn groups_do_what_the_oracle_does(
        (block_size, groups) in (1..4usize).prop_flat_map(|size| (Just(size), groups(size))),
        total in 8..40usize,
        ops in prop::collection::vec(op(), 1..200),
    ) {
        let mut pair = Pair::new(block_size, total, &groups);
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
        prop_assert!(pair.kv.groups.iter().all(|group| group.available() == group.total()));
    }
}
