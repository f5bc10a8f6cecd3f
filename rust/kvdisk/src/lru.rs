//! Which content is on disk, in order of use.

use crate::Hash;
use std::collections::{BTreeMap, HashMap};

/// A set of hashes that knows which was used longest ago. Each operation is O(log n).
#[derive(Debug, Default)]
pub(crate) struct Lru {
    used: HashMap<Hash, u64>,
    order: BTreeMap<u64, Hash>,
    clock: u64,
}

impl Lru {
    pub(crate) fn len(&self) -> usize {
        self.used.len()
    }

    pub(crate) fn contains(&self, hash: &Hash) -> bool {
        self.used.contains_key(hash)
    }

    /// Adds content as the last used.
    pub(crate) fn insert(&mut self, hash: Hash) {
        self.clock += 1;
        if let Some(before) = self.used.insert(hash, self.clock) {
            self.order.remove(&before);
        }
        self.order.insert(self.clock, hash);
    }

    /// Makes content the last used, if it is here.
    pub(crate) fn touch(&mut self, hash: &Hash) {
        if self.contains(hash) {
            self.insert(*hash);
        }
    }

    pub(crate) fn remove(&mut self, hash: &Hash) {
        if let Some(used) = self.used.remove(hash) {
            self.order.remove(&used);
        }
    }

    pub(crate) fn oldest(&self) -> Option<Hash> {
        self.order.first_key_value().map(|(_, hash)| *hash)
    }

    /// Empties the set and returns what was in it, least recently used first.
    pub(crate) fn take(&mut self) -> Vec<Hash> {
        self.used.clear();
        std::mem::take(&mut self.order).into_values().collect()
    }
}
