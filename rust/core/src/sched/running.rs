//! The sequences that hold a slot, in rank order.

use super::queue::{Candidate, Rank};

/// Sorted by rank: the front runs whatever happens, the back is preempted first.
#[derive(Debug)]
pub struct Running {
    sequences: Vec<Candidate>,
}

impl Running {
    /// Nothing runs; there is memory for as many as `slots`.
    pub fn with_capacity(slots: usize) -> Self {
        Self { sequences: Vec::with_capacity(slots) }
    }

    /// Sequences that run.
    pub fn len(&self) -> usize {
        self.sequences.len()
    }

    /// The sequence at a place in the order.
    pub fn get(&self, place: usize) -> Option<Candidate> {
        self.sequences.get(place).copied()
    }

    /// The one to preempt first.
    pub fn last(&self) -> Option<Candidate> {
        self.sequences.last().copied()
    }

    /// The sequences, best rank first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Candidate> + Clone + '_ {
        self.sequences.iter().copied()
    }

    /// Adds a sequence.
    pub fn insert(&mut self, candidate: Candidate) {
        let place = self.sequences.partition_point(|other| other.rank < candidate.rank);
        self.sequences.insert(place, candidate);
    }

    /// Takes a sequence out.
    pub fn remove(&mut self, rank: Rank) {
        let place = self.sequences.partition_point(|other| other.rank < rank);
        debug_assert_eq!(self.sequences.get(place).map(|found| found.rank), Some(rank));
        self.sequences.remove(place);
    }

    /// Takes all sequences out.
    pub fn drain(&mut self) -> impl Iterator<Item = Candidate> + '_ {
        self.sequences.drain(..)
    }
}
