//! Requests whose time is over.

use std::collections::BTreeSet;

use super::scheduler::Scheduler;
use crate::request::Deadlines;

/// The deadlines of unfinished sequences, earliest first.
#[derive(Debug, Default)]
pub struct Clock {
    alarms: BTreeSet<(u64, usize)>,
}

impl Clock {
    /// Watches a sequence.
    pub fn set(&mut self, deadlines: Deadlines, index: usize) {
        let times = [deadlines.start_ns, deadlines.end_ns];
        self.alarms.extend(times.into_iter().flatten().map(|ns| (ns, index)));
    }

    /// Forgets a sequence that has ended.
    pub fn clear(&mut self, deadlines: Deadlines, index: usize) {
        for ns in [deadlines.start_ns, deadlines.end_ns].into_iter().flatten() {
            self.alarms.remove(&(ns, index));
        }
    }
}

impl Scheduler {
    /// A sequence that has a deadline at or before `now_ns` and must end for it.
    pub fn expired(&mut self, now_ns: u64) -> Option<usize> {
        while let Some(&(ns, index)) = self.clock.alarms.first()
            && ns <= now_ns
        {
            self.clock.alarms.pop_first();
            let sequence = &self.sequences[index];
            let ends = sequence.deadlines.end_ns.is_some_and(|end_ns| end_ns <= now_ns);
            if ends || !sequence.has_run() {
                return Some(index);
            }
        }
        None
    }
}
