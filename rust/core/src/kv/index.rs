//! A fixed-size hash table from block keys to blocks: linear probing with
//! backward-shift deletion (Knuth, TAOCP 6.4, algorithm R), so that it never
//! allocates, never rehashes and leaves no tombstones.

/// No block.
pub const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Low half of the key: where its home is, and most of what tells it apart.
    tag: u32,
    block: u32,
}

const EMPTY: Entry = Entry { tag: 0, block: NONE };

/// Keys need not be unique; `find` asks the caller about each candidate.
#[derive(Debug)]
pub struct Index {
    entries: Vec<Entry>,
    mask: usize,
}

impl Index {
    /// A table for at most `blocks` entries, at most half full.
    pub fn new(blocks: usize) -> Self {
        let size = (2 * blocks).next_power_of_two();
        Self { entries: vec![EMPTY; size], mask: size - 1 }
    }

    fn home(&self, tag: u32) -> usize {
        tag as usize & self.mask
    }

    /// Touches what will be asked for under `keys`: memory gives many places at once in
    /// the time of one, but one after another if work lies between.
    pub fn touch(&self, keys: impl Iterator<Item = u64>) {
        for key in keys {
            std::hint::black_box(self.entries[self.home(key as u32)].tag);
        }
    }

    /// The first block under `key` that `is_it` accepts.
    pub fn find(&self, key: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let tag = key as u32;
        let mut place = self.home(tag);
        loop {
            let entry = self.entries[place];
            if entry.block == NONE {
                return None;
            }
            if entry.tag == tag && is_it(entry.block) {
                return Some(entry.block);
            }
            place = (place + 1) & self.mask;
        }
    }

    /// Adds a block that is not in the table.
    pub fn insert(&mut self, key: u64, block: u32) {
        let tag = key as u32;
        let mut place = self.home(tag);
        while self.entries[place].block != NONE {
            place = (place + 1) & self.mask;
        }
        self.entries[place] = Entry { tag, block };
    }

    /// Removes a block that is in the table.
    pub fn remove(&mut self, key: u64, block: u32) {
        let mut hole = self.home(key as u32);
        while self.entries[hole].block != block {
            hole = (hole + 1) & self.mask;
        }
        let mut place = hole;
        loop {
            place = (place + 1) & self.mask;
            let entry = self.entries[place];
            if entry.block == NONE {
                break;
            }
            let home = self.home(entry.tag);
            // Move the entry back unless its home lies after the hole.
            if (place.wrapping_sub(home) & self.mask) >= (place.wrapping_sub(hole) & self.mask) {
                self.entries[hole] = entry;
                hole = place;
            }
        }
        self.entries[hole] = EMPTY;
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.entries.fill(EMPTY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colliding_keys_survive_removals() {
        let mut index = Index::new(8);
        // All share their low bits, so all probe from the same place.
        let keys: Vec<u64> = (0..8u64).map(|i| ((i % 3) << 40) | ((i % 2) * 15)).collect();
        for (block, &key) in keys.iter().enumerate() {
            index.insert(key, block as u32);
        }
        for gone in 0..8u32 {
            index.remove(keys[gone as usize], gone);
            for block in 0..8u32 {
                let found = index.find(keys[block as usize], |b| b == block);
                assert_eq!(found, (block > gone).then_some(block));
            }
        }
    }
}
