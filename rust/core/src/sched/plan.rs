//! Planning a step.

use super::admit::Admission;
use super::budget::Budget;
use super::scheduler::Scheduler;
use super::step::Step;

impl Scheduler {
    /// Fills `step` with the next work; false if there is none now. Room is made
    /// for urgent requests first, then every sequence that needs one token gets
    /// it, and what is left goes to chunks of longer ones and to admissions.
    pub fn plan(&mut self, step: &mut Step) -> bool {
        step.clear();
        step.number = self.step + 1;
        let mut budget = Budget::new(&self.dims);
        self.kv.begin(step.number);
        if self.kv.has_groups() {
            self.slide();
        }
        self.make_room();
        self.plan_single_tokens(&mut budget, step);
        self.plan_chunks(&mut budget, step);
        self.kv.settle();
        self.kv.take_copies(&mut step.copies);
        if step.rows.is_empty() && self.wide.is_empty() && step.copies.is_empty() {
            return false;
        }
        step.rows.append(&mut self.wide);
        step.freed.append(&mut self.freed);
        self.step = step.number;
        true
    }

    /// Takes back what running sequences no longer need: steps in flight that still
    /// read it come before whoever gets it.
    fn slide(&mut self) {
        let Self { running, sequences, kv, .. } = self;
        for candidate in running.iter() {
            let sequence = &mut sequences[candidate.index];
            kv.slide(&mut sequence.lease, sequence.scheduled);
        }
    }

    /// Gives their token to sequences that need one, best rank first. Where no
    /// block is left, the running sequence of worst rank gives up its own.
    fn plan_single_tokens(&mut self, budget: &mut Budget, step: &mut Step) {
        self.chunked.clear();
        let mut place = 0;
        while let Some(candidate) = self.running.get(place) {
            place += 1;
            let index = candidate.index;
            let sequence = &self.sequences[index];
            match sequence.to_compute() {
                0 => continue,
                1 => {}
                _ => {
                    // It holds all of the spine since it was admitted, but windows move.
                    let blocks = sequence.lease.len();
                    if self.grow_or_preempt(index, blocks) {
                        self.chunked.push(candidate);
                    }
                    continue;
                }
            }
            // Its last token is on the device already; the commit will end it.
            if sequence.len() >= sequence.max_len(self.context_len) {
                continue;
            }
            let blocks = sequence.scheduled / self.block_size + 1;
            let entries = blocks.saturating_sub(sequence.synced);
            if budget.tokens == 0 || entries > budget.deltas {
                continue;
            }
            if self.grow_or_preempt(index, blocks) {
                self.schedule(index, 1, budget, step);
            }
        }
    }

    /// Spends the rest on sequences that need several tokens, and on waiting
    /// ones, which go first where the policy says so.
    fn plan_chunks(&mut self, budget: &mut Budget, step: &mut Step) {
        let mut admission = Admission::default();
        let chunked = std::mem::take(&mut self.chunked);
        self.look_ahead();
        for &running in &chunked {
            self.admit(Some(running), &mut admission, budget, step);
            let len = self.chunk_len(running.index, budget);
            if len > 0 {
                self.schedule(running.index, len, budget, step);
            }
        }
        self.chunked = chunked;
        self.admit(None, &mut admission, budget, step);
        self.undefer();
    }
}
