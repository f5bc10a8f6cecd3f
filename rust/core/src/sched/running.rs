//! The sequences that hold a slot, in rank order.

use super::queue::Rank;

/// Sorted by rank: the front runs whatever happens, the back is preempted first.
#[derive(Debug)]
pub struct Running {
    sequences: Vec<(Rank, usize)>,
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
    pub fn get(&self, place: usize) -> Option<(Rank, usize)> {
        self.sequences.get(place).copied()
    }

    /// The one to preempt first.
    pub fn last(&self) -> Option<(Rank, usize)> {
        self.sequences.last().copied()
    }

    /// The sequences, best rank first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Rank, usize)> + '_ {
        self.sequences.iter().copied()
    }

    /// Adds a sequence.
    pub fn insert(&mut self, rank: Rank, index: usize) {
        let place = self.sequences.partition_point(|&(other, _)| other < rank);
        self.sequences.insert(place, (rank, index));
    }

    /// Takes a sequence out.
    pub fn remove(&mut self, rank: Rank) {
        let place = self.sequences.partition_point(|&(other, _)| other < rank);
        debug_assert_eq!(self.sequences.get(place).map(|&(found, _)| found), Some(rank));
        self.sequences.remove(place);
    }

    /// Takes all sequences out.
    pub fn drain(&mut self) -> impl Iterator<Item = (Rank, usize)> + '_ {
        self.sequences.drain(..)
    }
}
