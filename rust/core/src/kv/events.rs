//! What enters and leaves the prefix cache, for those who route requests to
//! where their prefixes are.
//!
//! A block is told of when the step that computes it is committed: nobody is sent
//! here for content that is not there yet.

use std::collections::VecDeque;

use super::identity::BlockHash;
use super::radix::RadixTree;
use crate::ids::Token;

/// One change of the prefix cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvEvent {
    /// A block can be read from now on.
    Stored {
        /// The block.
        block: BlockHash,
        /// The block before it, if it is not the first.
        parent: Option<BlockHash>,
        /// The salt that it is under.
        salt: u64,
        /// Its tokens.
        tokens: Vec<Token>,
    },
    /// A block that was stored is gone.
    Removed {
        /// The block.
        block: BlockHash,
    },
    /// All blocks are gone.
    Cleared,
}

/// Changes in the order in which they happened.
#[derive(Debug, Default)]
pub struct KvEvents {
    /// The changes.
    pub events: Vec<KvEvent>,
    /// Others were lost, for nobody took them in time.
    pub lost: bool,
}

/// What was told of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    /// It entered as the so many-th.
    Entered(u64),
    Stored,
}

#[derive(Clone, Copy, Debug)]
struct Entered {
    number: u64,
    block: u32,
    step: u64,
}

/// Collects changes if somebody wants them.
#[derive(Debug)]
pub struct EventLog {
    enabled: bool,
    /// By block.
    told: Vec<Told>,
    /// What entered the tree and is not computed yet, parents first.
    entered: VecDeque<Entered>,
    count: u64,
    taken: KvEvents,
    most: usize,
}

impl EventLog {
    /// An empty log over `blocks` blocks.
    pub fn new(blocks: usize, enabled: bool) -> Self {
        Self {
            enabled,
            told: vec![Told::Nothing; if enabled { blocks } else { 0 }],
            entered: VecDeque::new(),
            count: 0,
            taken: KvEvents::default(),
            // A step stores and removes each block once at most.
            most: 4 * blocks + 1,
        }
    }

    /// A block entered the tree.
    pub fn entered(&mut self, block: u32, step: u64) {
        if self.enabled {
            self.count += 1;
            self.told[block as usize] = Told::Entered(self.count);
            self.entered.push_back(Entered { number: self.count, block, step });
        }
    }

    /// What `step` and those before it compute is there.
    pub fn committed(&mut self, tree: &RadixTree, step: u64) {
        while let Some(&Entered { number, block, .. }) =
            self.entered.front().filter(|entered| entered.step <= step)
        {
            self.entered.pop_front();
            // It may have left since, and even have entered anew.
            if self.told[block as usize] == Told::Entered(number)
                && let Some(identity) = tree.identity(block)
            {
                self.told[block as usize] = Told::Stored;
                self.tell(KvEvent::Stored {
                    block: identity,
                    parent: tree.parent(block).and_then(|parent| tree.identity(parent)),
                    salt: tree.salt(block),
                    tokens: tree.content(block).to_vec(),
                });
            }
        }
    }

    /// A block is about to leave the tree.
    pub fn leaves(&mut self, tree: &RadixTree, block: u32) {
        if self.enabled
            && std::mem::replace(&mut self.told[block as usize], Told::Nothing) == Told::Stored
            && let Some(identity) = tree.identity(block)
        {
            self.tell(KvEvent::Removed { block: identity });
        }
    }

    /// All blocks are about to leave the tree.
    pub fn all_leave(&mut self) {
        if self.enabled {
            self.told.fill(Told::Nothing);
            self.entered.clear();
            self.tell(KvEvent::Cleared);
        }
    }

    /// The changes since the last call.
    pub fn take(&mut self) -> KvEvents {
        std::mem::take(&mut self.taken)
    }

    fn tell(&mut self, event: KvEvent) {
        if self.taken.events.len() < self.most {
            self.taken.events.push(event);
        } else {
            self.taken.lost = true;
        }
    }
}
