//! Prefixes that are kept for a time: which cached blocks are given up only
//! after all others.
//!
//! A pin covers the path from the root to its last block, so a parent is pinned
//! for at least as long as its children. Only pinned blocks without pinned
//! children have an alarm; as these expire their parents get theirs, so blocks
//! expire leaf first and each costs O(log n).

use std::collections::BTreeSet;
use std::iter::successors;

use super::radix::RadixTree;

#[derive(Clone, Copy, Debug, Default)]
struct Pin {
    /// When it ends; 0 is not pinned.
    until_ns: u64,
    /// Children that are pinned.
    children: u32,
}

/// The pins of members of the tree.
#[derive(Debug)]
pub struct Pins {
    by_block: Vec<Pin>,
    alarms: BTreeSet<(u64, u32)>,
    count: usize,
    most: usize,
}

impl Pins {
    /// No pins over `blocks` blocks, of which at most `most` can be pinned.
    pub fn new(blocks: usize, most: usize) -> Self {
        Self { by_block: vec![Pin::default(); blocks], alarms: BTreeSet::new(), count: 0, most }
    }

    /// Blocks that are pinned.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if the block is pinned.
    pub fn contains(&self, block: u32) -> bool {
        self.by_block[block as usize].until_ns > 0
    }

    /// Pins `tip`, a member of `tree`, and all before it until `until_ns` at
    /// least. False, and nothing changes, if too many blocks would be pinned.
    pub fn pin(&mut self, tree: &RadixTree, tip: u32, until_ns: u64) -> bool {
        let path = || successors(Some(tip), |&block| tree.parent(block));
        let more = path().take_while(|&block| !self.contains(block)).count();
        if self.count + more > self.most {
            return false;
        }
        for block in path() {
            let pin = &mut self.by_block[block as usize];
            let before_ns = pin.until_ns;
            if before_ns >= until_ns {
                break;
            }
            pin.until_ns = until_ns;
            if pin.children == 0 {
                self.alarms.remove(&(before_ns, block));
                self.alarms.insert((until_ns, block));
            }
            if before_ns == 0 {
                self.count += 1;
                if let Some(parent) = tree.parent(block) {
                    let pin = &mut self.by_block[parent as usize];
                    pin.children += 1;
                    self.alarms.remove(&(pin.until_ns, parent));
                }
            }
        }
        true
    }

    /// Ends the pin of a block without pinned children, if it has one.
    pub fn unpin(&mut self, tree: &RadixTree, block: u32) {
        let Pin { until_ns, children } = std::mem::take(&mut self.by_block[block as usize]);
        if until_ns == 0 {
            return;
        }
        debug_assert_eq!(children, 0, "children are unpinned first");
        self.alarms.remove(&(until_ns, block));
        self.count -= 1;
        if let Some(parent) = tree.parent(block) {
            let pin = &mut self.by_block[parent as usize];
            pin.children -= 1;
            if pin.children == 0 {
                self.alarms.insert((pin.until_ns, parent));
            }
        }
    }

    /// Ends one pin whose time is at or before `now_ns`; its block, children
    /// before parents.
    pub fn expire(&mut self, tree: &RadixTree, now_ns: u64) -> Option<u32> {
        let &(until_ns, block) = self.alarms.first()?;
        (until_ns <= now_ns).then(|| {
            self.unpin(tree, block);
            block
        })
    }

    /// Ends all pins.
    pub fn clear(&mut self) {
        if self.count > 0 {
            self.by_block.fill(Pin::default());
            self.alarms.clear();
            self.count = 0;
        }
    }

    /// The first law that is broken and where: pins are of members, a parent's
    /// lasts as long as its children's, who has no pinned child has an alarm.
    pub fn broken_law(&self, tree: &RadixTree) -> Option<(&'static str, u32)> {
        let mut children = vec![0; self.by_block.len()];
        let mut count = 0;
        for (block, pin) in (0u32..).zip(&self.by_block).filter(|(_, pin)| pin.until_ns > 0) {
            count += 1;
            if !tree.contains(block) {
                return Some(("a pinned block is in the tree", block));
            }
            if let Some(parent) = tree.parent(block) {
                children[parent as usize] += 1;
                if self.by_block[parent as usize].until_ns < pin.until_ns {
                    return Some(("a parent is pinned for as long as its children", block));
                }
            }
            if self.alarms.contains(&(pin.until_ns, block)) != (pin.children == 0) {
                return Some(("the last blocks of pins have alarms", block));
            }
        }
        let tips = self.by_block.iter().filter(|pin| pin.until_ns > 0 && pin.children == 0).count();
        if count != self.count || self.count > self.most || tips != self.alarms.len() {
            return Some(("pins are counted and bounded", 0));
        }
        let place =
            (0u32..).zip(&self.by_block).find(|&(block, pin)| pin.children != children[block as usize]);
        place.map(|(block, _)| ("pinned children are counted", block))
    }
}
