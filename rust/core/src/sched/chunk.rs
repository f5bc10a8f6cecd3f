//! How many of a sequence's tokens one step computes.

use super::budget::Budget;
use super::sequence::Sequence;

/// The largest chunk of `sequence` within the budget, 0 if none fits.
/// `threshold` bounds a chunk of several tokens; 0 is no bound.
pub fn chunk_len(sequence: &Sequence, budget: &Budget, block_size: usize, threshold: usize) -> usize {
    let wanted = sequence.to_compute().min(budget.tokens);
    let wanted = if threshold > 0 { wanted.min(threshold) } else { wanted };
    // Entries up to the chunk's last block must fit the frame.
    let reachable = (sequence.synced + budget.deltas) * block_size;
    wanted.min(reachable.saturating_sub(sequence.scheduled))
}
