//! How many of a sequence's tokens one step computes.

use super::budget::Budget;
use super::scheduler::Scheduler;

impl Scheduler {
    /// The largest chunk of a running sequence within the budget, 0 if none fits.
    /// The threshold bounds a chunk of several tokens; 0 is no bound.
    pub(super) fn chunk_len(&self, index: usize, budget: &Budget) -> usize {
        let sequence = &self.sequences[index];
        let wanted = sequence.to_compute().min(budget.tokens);
        let wanted = if self.threshold > 0 { wanted.min(self.threshold) } else { wanted };
        // Entries up to the chunk's last block must fit the frame.
        let reachable = (sequence.synced + budget.deltas) * self.block_size;
        let start = sequence.scheduled;
        let end = reachable.clamp(start, start + wanted);
        self.kv.step_end(&sequence.lease, start, end) - start
    }
}
