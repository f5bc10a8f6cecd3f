//! Taking memory back from running sequences. A preempted one keeps its tokens,
//! waits with its old rank and is computed again from them; the front of the
//! running order is never preempted for memory, so the oldest always advances.

use super::queue::Rank;
use super::scheduler::Scheduler;

impl Scheduler {
    /// Extends a running sequence to `blocks` blocks, preempting from the back
    /// of the order until they are there; false if that took the sequence itself.
    pub(super) fn grow_or_preempt(&mut self, index: usize, blocks: usize) -> bool {
        while !self.kv.grow(&mut self.sequences[index].lease, blocks) {
            let Some((rank, victim)) = self.running.last() else { return false };
            self.preempt(rank, victim);
            if victim == index {
                return false;
            }
        }
        true
    }

    /// Preempts running sequences that the first waiting one displaces, if that
    /// gives it the slot and blocks that it lacks.
    pub(super) fn make_room(&mut self) {
        let Some((rank, index)) = self.waiting.next(None) else { return };
        let displaced = |victim: &(Rank, usize)| self.order.displaces(rank, victim.0);
        if !self.running.last().is_some_and(|last| displaced(&last)) {
            return;
        }
        let victims = self.running.iter().rev().take_while(displaced);
        let (count, held) =
            victims.fold((0, 0), |(count, held), (_, i)| (count + 1, held + self.sequences[i].lease.len()));
        let reserve = if count == self.running.len() { 0 } else { self.watermark_blocks };
        let needed = self.kv.blocks_for(self.sequences[index].tokens.len());
        if needed + reserve > self.kv.available() + held {
            return;
        }
        while !self.fits(index).1 {
            match self.running.last() {
                Some((last, victim)) if self.order.displaces(rank, last) => self.preempt(last, victim),
                _ => return,
            }
        }
    }

    fn preempt(&mut self, rank: Rank, index: usize) {
        self.stop_running(index);
        self.waiting.push(rank, index);
        self.counters.preemptions += 1;
    }
}
