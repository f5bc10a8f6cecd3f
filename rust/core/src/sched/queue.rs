//! The requests that wait, in the order that a policy gives them.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::ops::Bound::{Excluded, Unbounded};

use super::fcfs::FirstCome;
use super::priority::ByPriority;
use crate::limits::Policy;

/// Place in an order; lower is served first and preempted last. Unique, for
/// `arrival` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Decides first.
    pub class: i64,
    /// Decides among equals: the count of requests before this one.
    pub arrival: u64,
}

/// What an order may look at.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// The request's priority; lower is more urgent.
    pub priority: i32,
    /// The count of requests before this one.
    pub arrival: u64,
}

/// A scheduling policy. A new one is a file with one implementation.
pub trait Order: Debug + Send {
    /// The request's place for its whole life.
    fn rank(&mut self, candidate: Candidate) -> Rank;

    /// True if a waiting request may take the place of a running one.
    fn displaces(&self, waiting: Rank, running: Rank) -> bool;
}

/// The order of a policy.
pub fn order(policy: Policy) -> Box<dyn Order> {
    match policy {
        Policy::Fcfs => Box::new(FirstCome),
        Policy::Priority => Box::new(ByPriority),
    }
}

/// Waiting sequences by rank. A preempted one comes back with its old rank and
/// so stands before those that arrived later.
#[derive(Debug, Default)]
pub struct WaitingQueue {
    sequences: BTreeSet<(Rank, usize)>,
}

impl WaitingQueue {
    /// Sequences that wait.
    pub fn len(&self) -> usize {
        self.sequences.len()
    }

    /// Adds a sequence.
    pub fn push(&mut self, rank: Rank, index: usize) {
        self.sequences.insert((rank, index));
    }

    /// Takes a sequence out.
    pub fn remove(&mut self, rank: Rank, index: usize) {
        self.sequences.remove(&(rank, index));
    }

    /// The first sequence, or the first after `rank`.
    pub fn next(&self, after: Option<Rank>) -> Option<(Rank, usize)> {
        match after {
            None => self.sequences.first().copied(),
            Some(rank) => self.sequences.range((Excluded((rank, usize::MAX)), Unbounded)).next().copied(),
        }
    }
}
