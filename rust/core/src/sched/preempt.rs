//! Taking memory back from running sequences. A preempted one keeps its tokens,
//! waits with its old rank and is computed again from them; the front of the
//! running order is never preempted for memory, so the oldest always advances.

use super::queue::Candidate;
use super::scheduler::Scheduler;
use super::sequence::Sequence;

impl Scheduler {
    /// Extends a running sequence to `blocks` blocks, preempting from the back
    /// of the order until they are there; false if that took the sequence itself, or
    /// would while a token of it is on its way: it waits for that one first.
    #[inline]
    pub(super) fn grow_or_preempt(&mut self, index: usize, blocks: usize) -> bool {
        let Sequence { lease, scheduled, .. } = &mut self.sequences[index];
        self.kv.grow(lease, *scheduled, blocks) || self.preempt_to_grow(index, blocks)
    }

    fn preempt_to_grow(&mut self, index: usize, blocks: usize) -> bool {
        loop {
            let Sequence { lease, scheduled, .. } = &mut self.sequences[index];
            if self.kv.grow(lease, *scheduled, blocks) {
                return true;
            }
            let Some(victim) = self.running.last() else { return false };
            if victim.index == index && self.sequences[index].unread > 0 {
                // Its token would be lost, and with it perhaps all that a step computed for it.
                return false;
            }
            self.preempt(victim);
            if victim.index == index {
                return false;
            }
        }
    }

    /// Preempts running sequences that the first waiting one displaces, if that
    /// gives it the slot and blocks that it lacks.
    pub(super) fn make_room(&mut self) {
        let Some(Candidate { rank, index, .. }) = self.waiting.first() else { return };
        if self.awaits_disk(index) {
            return;
        }
        let displaced = |victim: &Candidate| self.waiting.displaces(rank, victim.rank);
        if !self.running.last().is_some_and(|last| displaced(&last)) {
            return;
        }
        let victims = self.running.iter().rev().take_while(displaced);
        let beside_others = victims.clone().count() < self.running.len();
        let leases = victims.map(|victim| &self.sequences[victim.index].lease);
        let needed = self.kv.blocks_for(self.sequences[index].tokens.len());
        let suffices = self.kv.could_admit(needed, &leases, beside_others);
        drop(leases);
        if !suffices {
            return;
        }
        while !self.fits(index).1 {
            match self.running.last() {
                Some(last) if self.waiting.displaces(rank, last.rank) => self.preempt(last),
                _ => return,
            }
        }
    }

    fn preempt(&mut self, victim: Candidate) {
        self.stop_running(victim.index);
        self.waiting.push(victim, true);
        self.counters.preemptions += 1;
        self.preempted.push(self.sequences[victim.index].id);
    }
}
