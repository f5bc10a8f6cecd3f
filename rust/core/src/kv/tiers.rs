//! The tiers below the device: host memory, and disk below that.
//!
//! A block that the device gives up is copied to the host first; one that the
//! device lacks and the host has is copied back when a sequence is admitted.
//! Both copies are part of a step's frame: all saves, then all loads, then the
//! rows. Frames run in order, so a save sees what earlier steps computed, and
//! the step that loads a block may read it.
//!
//! With a disk tier every block is written through once its last lease ends, so
//! that a restart finds it. Content is fetched from disk when a request that
//! can use it is queued; the request waits for it, others do not.

use std::collections::{HashMap, HashSet, VecDeque};

use super::host::HostTier;
use super::identity::BlockHash;
use crate::ids::Token;
use crate::transfer::Transfer;

/// Blocks that a step writes through beside those that it evicts; bounds what
/// writing through adds to a step.
const WRITTEN_THROUGH: usize = 16;

/// What there is below the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierConfig {
    /// Slots of the host tier.
    pub host_slots: u32,
    /// Most saves, and most loads, a step.
    pub most_copies: usize,
    /// Loading a block is cheaper than computing it.
    pub loads: bool,
    /// There is a disk tier.
    pub disk: bool,
}

/// A copy between a block of the device and a slot of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCopy {
    /// On the device.
    pub block: u32,
    /// On the host.
    pub slot: u32,
}

/// The copies of one step, in the order in which they are done.
#[derive(Debug, Default)]
pub struct Copies {
    /// Device to host.
    pub saves: Vec<BlockCopy>,
    /// Host to device.
    pub loads: Vec<BlockCopy>,
}

impl Copies {
    /// No copies, with memory for as many as a step may have.
    pub fn with_capacity(most: usize) -> Self {
        Self { saves: Vec::with_capacity(most), loads: Vec::with_capacity(most) }
    }

    /// True if there is nothing to copy.
    pub fn is_empty(&self) -> bool {
        self.saves.is_empty() && self.loads.is_empty()
    }

    /// Forgets the copies and keeps the memory.
    pub fn clear(&mut self) {
        self.saves.clear();
        self.loads.clear();
    }
}

/// Content that found no place on the host, in blocks since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Given up by the device and not saved.
    pub saves: u64,
    /// On disk, asked for and not fetched.
    pub fetches: u64,
}

#[derive(Debug)]
struct Disk {
    known: HashSet<BlockHash>,
    /// Content on its way to the host, and to which slot.
    fetching: HashMap<BlockHash, u32>,
    /// Stores and fetches that are not done.
    under_way: usize,
    /// Blocks to write through, and which those are.
    unsaved: VecDeque<u32>,
    listed: Vec<bool>,
    /// For the driver to take.
    transfers: Vec<Transfer>,
}

impl Disk {
    fn new(blocks: usize) -> Self {
        Self {
            known: HashSet::new(),
            fetching: HashMap::new(),
            under_way: 0,
            unsaved: VecDeque::with_capacity(blocks),
            listed: vec![false; blocks],
            transfers: Vec::new(),
        }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Tiers {
    config: TierConfig,
    host: HostTier,
    disk: Option<Disk>,
    /// Number and copies of the step being planned.
    step: u64,
    copies: Copies,
    /// The slots of the last match, held.
    matched: Vec<u32>,
    lost: Lost,
}

impl Tiers {
    /// Empty tiers below a device of `blocks` blocks.
    pub fn new(config: TierConfig, blocks: usize) -> Self {
        Self {
            config,
            host: HostTier::new(config.host_slots),
            disk: config.disk.then(|| Disk::new(blocks)),
            step: 0,
            copies: Copies::with_capacity(config.most_copies),
            matched: Vec::with_capacity(config.most_copies),
            lost: Lost::default(),
        }
    }

    /// True if there is a tier below the host.
    pub fn has_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// Slots of the host tier.
    pub fn host_slots(&self) -> usize {
        self.host.slots()
    }

    /// Slots of the host tier that have content.
    pub fn host_used(&self) -> usize {
        self.host.used()
    }

    /// Slots of the host tier that steps and transfers use.
    pub fn host_held(&self) -> usize {
        self.host.held()
    }

    /// What found no place.
    pub fn lost(&self) -> Lost {
        self.lost
    }

    /// Blocks that are known to be on disk.
    pub fn on_disk(&self) -> usize {
        self.disk.as_ref().map_or(0, |disk| disk.known.len())
    }

    /// Planning of a step begins.
    pub fn begin(&mut self, step: u64) {
        self.step = step;
    }

    /// The device gives up a block with this content.
    pub fn evict(&mut self, block: u32, hash: BlockHash) {
        if let Some(slot) = self.host.find(&hash) {
            return self.host.touch(slot);
        }
        if !self.save(block, hash) {
            self.lost.saves += 1;
        }
    }

    /// Plans a copy to the host; false if that is not possible in this step.
    fn save(&mut self, block: u32, hash: BlockHash) -> bool {
        if self.copies.saves.len() >= self.config.most_copies {
            return false;
        }
        let Some(slot) = self.host.reserve() else { return false };
        self.host.fill(slot, hash, self.step);
        self.copies.saves.push(BlockCopy { block, slot });
        true
    }

    /// Nobody holds the block any more, and it is in the prefix cache.
    pub fn unleased(&mut self, block: u32) {
        if let Some(disk) = &mut self.disk
            && !std::mem::replace(&mut disk.listed[block as usize], true)
        {
            disk.unsaved.push_back(block);
        }
    }

    /// Plans to write blocks through that are not on disk yet; `identity` gives
    /// that of a block which still is in the prefix cache and which nobody holds.
    pub fn write_through(&mut self, identity: impl Fn(u32) -> Option<BlockHash>) {
        let most = self.host.slots() / 2;
        for _ in 0..WRITTEN_THROUGH {
            let Some(disk) = &mut self.disk else { return };
            let Some(&block) = disk.unsaved.front() else { return };
            let hash = identity(block).filter(|hash| !disk.known.contains(hash));
            let is_new = hash.filter(|hash| self.host.find(hash).is_none());
            if is_new.is_some() && disk.under_way + self.copies.saves.len() > most {
                return;
            }
            if is_new.is_some_and(|hash| !self.save(block, hash)) {
                return;
            }
            if let Some(disk) = &mut self.disk {
                disk.unsaved.pop_front();
                disk.listed[block as usize] = false;
            }
        }
    }

    /// Looks up how many blocks of `tokens` the host has, `parent` being the
    /// identity of the block before them. At most `most`; their slots are held.
    pub fn find<'a>(
        &mut self,
        mut parent: BlockHash,
        tokens: impl Iterator<Item = &'a [Token]>,
        most: usize,
    ) -> usize {
        let room = self.config.most_copies - self.copies.loads.len();
        let most = if self.config.loads { most.min(room) } else { 0 };
        for content in tokens.take(most) {
            parent = parent.child(content);
            let Some(slot) = self.host.find(&parent) else { break };
            self.host.hold(slot);
            self.matched.push(slot);
        }
        self.matched.len()
    }

    /// Plans to load what the last [`Self::find`] found into `blocks`; returns how many
    /// of them came from disk and were not loaded since.
    pub fn load(&mut self, blocks: &[u32]) -> usize {
        let mut fetched = 0;
        for (slot, &block) in self.matched.drain(..).zip(blocks) {
            fetched += usize::from(self.host.take_fetched(slot));
            self.copies.loads.push(BlockCopy { block, slot });
        }
        fetched
    }

    /// Moves the copies of the step being planned to `copies`, which is empty.
    pub fn take_copies(&mut self, copies: &mut Copies) {
        std::mem::swap(&mut self.copies, copies);
    }

    /// A step's copies are done.
    pub fn commit(&mut self, step: u64, copies: &Copies) {
        self.host.commit(step);
        for &BlockCopy { slot, .. } in &copies.saves {
            match (&mut self.disk, self.host.content(slot)) {
                (Some(disk), Some(hash)) if !disk.known.contains(&hash) => {
                    disk.under_way += 1;
                    disk.transfers.push(Transfer::Store { hash, slot });
                }
                _ => self.host.release(slot),
            }
        }
        copies.loads.iter().for_each(|copy| self.host.release(copy.slot));
    }

    /// The worker died before it did these copies.
    pub fn abandon(&mut self, copies: &Copies) {
        copies.saves.iter().chain(&copies.loads).for_each(|copy| self.host.release(copy.slot));
    }

    /// The worker died, and what it did not commit is void.
    pub fn recover(&mut self) {
        self.host.forget_uncommitted();
        if let Some(disk) = &mut self.disk {
            disk.unsaved.clear();
            disk.listed.fill(false);
        }
    }

    /// Starts to fetch what the host lacks of `tokens` and the disk has, `parent`
    /// being the identity of the block before them; returns what to wait for.
    pub fn fetch<'a>(
        &mut self,
        mut parent: BlockHash,
        tokens: impl Iterator<Item = &'a [Token]>,
    ) -> Vec<BlockHash> {
        let mut awaited = Vec::new();
        let (Some(disk), true) = (&mut self.disk, self.config.loads) else { return awaited };
        for content in tokens {
            parent = parent.child(content);
            if let Some(slot) = self.host.find(&parent) {
                self.host.touch(slot);
                continue;
            }
            if !disk.fetching.contains_key(&parent) {
                if !disk.known.contains(&parent) || disk.under_way >= self.host.slots() / 2 {
                    break;
                }
                let Some(slot) = self.host.reserve() else {
                    self.lost.fetches += 1;
                    break;
                };
                disk.under_way += 1;
                disk.fetching.insert(parent, slot);
                disk.transfers.push(Transfer::Fetch { hash: parent, slot });
            }
            awaited.push(parent);
        }
        awaited
    }

    /// True while content is on its way from disk.
    pub fn is_fetching(&self, hash: &BlockHash) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.fetching.contains_key(hash))
    }

    /// Moves what the driver is to do for the disk tier to `transfers`.
    pub fn take_transfers(&mut self, transfers: &mut Vec<Transfer>) {
        if let Some(disk) = &mut self.disk {
            transfers.append(&mut disk.transfers);
        }
    }

    /// The driver has done a transfer, or failed to.
    pub fn transferred(&mut self, transfer: Transfer, done: bool) {
        let Some(disk) = &mut self.disk else { return };
        match transfer {
            Transfer::Store { hash, slot } => {
                disk.under_way -= 1;
                // Unless it was forgotten meanwhile: then a deletion follows.
                if done && self.host.content(slot) == Some(hash) {
                    disk.known.insert(hash);
                }
                self.host.release(slot);
            }
            Transfer::Fetch { hash, slot } => {
                disk.under_way -= 1;
                let wanted = disk.fetching.get(&hash) == Some(&slot);
                if wanted {
                    disk.fetching.remove(&hash);
                    if done && self.host.find(&hash).is_none() {
                        self.host.fill(slot, hash, 0);
                    } else if !done {
                        disk.known.remove(&hash);
                    }
                }
                self.host.release(slot);
            }
            Transfer::Delete { .. } | Transfer::Clear => {}
        }
    }

    /// The disk has this content, whoever put it there, or no longer.
    pub fn set_on_disk(&mut self, hash: BlockHash, is_there: bool) {
        let Some(disk) = &mut self.disk else { return };
        if is_there {
            disk.known.insert(hash);
        } else {
            disk.known.remove(&hash);
        }
    }

    /// Forgets content everywhere.
    pub fn forget(&mut self, hash: &BlockHash) {
        self.host.remove(hash);
        if let Some(disk) = &mut self.disk {
            disk.fetching.remove(hash);
            disk.known.remove(hash);
            // Always: a store may be under way.
            disk.transfers.push(Transfer::Delete { hash: *hash });
        }
    }

    /// Forgets everything everywhere.
    pub fn clear(&mut self) {
        self.host.clear();
        if let Some(disk) = &mut self.disk {
            disk.fetching.clear();
            disk.known.clear();
            disk.unsaved.clear();
            disk.listed.fill(false);
            disk.transfers.push(Transfer::Clear);
        }
    }

    /// The first of the tiers' laws that does not hold between two steps.
    pub fn broken_law(&self) -> Option<(&'static str, u32)> {
        if let Some(&slot) = self.matched.first() {
            return Some(("no host slot is matched between steps", slot));
        }
        self.host.broken_law()
    }
}
