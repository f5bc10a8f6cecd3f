//! The host tier: slots in the host's memory that hold copies of blocks which the
//! device had, least recently used first out.
//!
//! Slots are written and read by the frames of steps, which run in the order in
//! which they are planned, and by transfers to and from disk, which do not. A
//! slot that either still uses is held and is not given to anyone else.

use std::collections::HashMap;

use super::evict::LruList;
use super::identity::BlockHash;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// What is in the slot; `None` while it is free or about to be.
    hash: Option<BlockHash>,
    /// The step that copies it there; 0 if it came from disk.
    saved_by: u64,
    /// It came from disk, and nobody has loaded it since.
    fetched: bool,
    /// Steps and transfers that still use the slot.
    holds: u32,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct HostTier {
    entries: Vec<Entry>,
    by_hash: HashMap<BlockHash, u32>,
    free: Vec<u32>,
    /// Slots with content that nobody holds.
    lru: LruList,
    /// The last step whose copies are known to be done.
    committed: u64,
}

impl HostTier {
    /// A tier of free slots.
    pub fn new(slots: u32) -> Self {
        Self {
            entries: vec![Entry::default(); slots as usize],
            by_hash: HashMap::with_capacity(slots as usize),
            free: (0..slots).rev().collect(),
            lru: LruList::new(slots as usize),
            committed: 0,
        }
    }

    /// Slots in all.
    pub fn slots(&self) -> usize {
        self.entries.len()
    }

    /// Slots with content.
    pub fn used(&self) -> usize {
        self.by_hash.len()
    }

    /// The slot that has this content, or has it before any later step runs.
    pub fn find(&self, hash: &BlockHash) -> Option<u32> {
        self.by_hash.get(hash).copied()
    }

    /// What is in a slot.
    pub fn content(&self, slot: u32) -> Option<BlockHash> {
        self.entries[slot as usize].hash
    }

    /// Takes a free slot, or the least recently used one, and holds it.
    pub fn reserve(&mut self) -> Option<u32> {
        let slot = self.free.pop().or_else(|| {
            let oldest = self.lru.front()?;
            self.lru.remove(oldest);
            let hash = self.entries[oldest as usize].hash.take();
            hash.map(|hash| self.by_hash.remove(&hash));
            Some(oldest)
        })?;
        self.entries[slot as usize] = Entry { holds: 1, ..Entry::default() };
        Some(slot)
    }

    /// Names the content that step `saved_by`, or the disk if it is 0, puts into a
    /// reserved slot.
    pub fn fill(&mut self, slot: u32, hash: BlockHash, saved_by: u64) {
        let entry = &mut self.entries[slot as usize];
        entry.hash = Some(hash);
        entry.saved_by = saved_by;
        entry.fetched = saved_by == 0;
        self.by_hash.insert(hash, slot);
    }

    /// True if a slot's content came from disk, the first time that it is asked.
    pub fn take_fetched(&mut self, slot: u32) -> bool {
        std::mem::take(&mut self.entries[slot as usize].fetched)
    }

    /// Slots that are held.
    pub fn held(&self) -> usize {
        self.slots() - self.free.len() - self.lru.len()
    }

    /// Keeps a slot until [`Self::release`].
    pub fn hold(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        if entry.holds == 0 {
            self.lru.remove(slot);
        }
        entry.holds += 1;
    }

    /// Ends a hold. The slot's content becomes the most recently used.
    pub fn release(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        entry.holds -= 1;
        if entry.holds == 0 {
            match entry.hash {
                Some(_) => self.lru.push_back(slot),
                None => self.free.push(slot),
            }
        }
    }

    /// Makes content that nobody holds the most recently used.
    pub fn touch(&mut self, slot: u32) {
        self.hold(slot);
        self.release(slot);
    }

    /// Forgets content; its slot is free as soon as nobody holds it.
    pub fn remove(&mut self, hash: &BlockHash) {
        let Some(slot) = self.by_hash.remove(hash) else { return };
        let entry = &mut self.entries[slot as usize];
        entry.hash = None;
        if entry.holds == 0 {
            self.lru.remove(slot);
            self.free.push(slot);
        }
    }

    /// Forgets all content.
    pub fn clear(&mut self) {
        self.remove_if(|_| true);
    }

    /// The copies of this step are done.
    pub fn commit(&mut self, step: u64) {
        self.committed = step;
    }

    /// The worker died: copies that were not done never will be.
    pub fn forget_uncommitted(&mut self) {
        let committed = self.committed;
        self.remove_if(|entry| entry.saved_by > committed);
    }

    fn remove_if(&mut self, goes: impl Fn(&Entry) -> bool) {
        for slot in 0..self.entries.len() {
            let entry = self.entries[slot];
            if let Some(hash) = entry.hash.filter(|_| goes(&entry)) {
                self.remove(&hash);
            }
        }
    }

    /// The first of the tier's laws that does not hold.
    pub fn broken_law(&self) -> Option<(&'static str, u32)> {
        let mut states = vec![0u32; self.entries.len()];
        self.free.iter().for_each(|&slot| states[slot as usize] += 1);
        self.lru.iter().for_each(|slot| states[slot as usize] += 1);
        for (slot, entry) in (0..).zip(&self.entries) {
            if states[slot as usize] + u32::from(entry.holds > 0) != 1 {
                return Some(("a host slot is free, evictable or held", slot));
            }
            let named = entry.hash.is_some_and(|hash| self.by_hash.get(&hash) == Some(&slot));
            if named != entry.hash.is_some() {
                return Some(("a host slot is found by its content", slot));
            }
        }
        let free = self.free.iter().find(|&&slot| self.entries[slot as usize].hash.is_some());
        free.map(|&slot| ("a free host slot is empty", slot))
    }
}
