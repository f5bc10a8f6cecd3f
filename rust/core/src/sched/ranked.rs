//! The policies in which a request's rank decides all: first come, first
//! served, and lower priority numbers first.

use std::collections::BTreeSet;

use super::queue::{Candidate, Queue, Rank};

/// Waiting requests by rank. A preempted one comes back with its old rank and
/// so stands before those that arrived later.
#[derive(Debug)]
pub struct Ranked {
    by_priority: bool,
    waiting: BTreeSet<Candidate>,
}

impl Ranked {
    /// First come, first served.
    pub fn by_arrival() -> Self {
        Self { by_priority: false, waiting: BTreeSet::new() }
    }

    /// Lower priority numbers first, first come among equals. A waiting request
    /// displaces a running one of a strictly higher number.
    pub fn by_priority() -> Self {
        Self { by_priority: true, waiting: BTreeSet::new() }
    }
}

impl Queue for Ranked {
    fn rank(&self, priority: i32, arrival: u64) -> Rank {
        Rank { class: if self.by_priority { i64::from(priority) } else { 0 }, arrival }
    }

    fn len(&self) -> usize {
        self.waiting.len()
    }

    fn push(&mut self, candidate: Candidate, _again: bool) {
        self.waiting.insert(candidate);
    }

    fn remove(&mut self, candidate: Candidate) {
        self.waiting.remove(&candidate);
    }

    fn first(&mut self) -> Option<Candidate> {
        self.waiting.first().copied()
    }

    fn displaces(&self, waiting: Rank, running: Rank) -> bool {
        waiting.class < running.class
    }
}
