//! Keeping the prefixes of requests that ask for it.

use super::scheduler::Scheduler;

impl Scheduler {
    /// Pins the prefix that a running sequence is to keep, once it is in the
    /// prefix cache.
    pub(super) fn retain(&mut self, index: usize) {
        let sequence = &self.sequences[index];
        let Some(retain) = sequence.retain else { return };
        let blocks = (retain.tokens as usize).min(sequence.prompt_len) / self.block_size;
        if sequence.retained || blocks == 0 || sequence.lease.cached() < blocks {
            return;
        }
        let until_ns = self.now_ns.saturating_add(retain.ttl_ns);
        if !self.kv.pin(&sequence.lease, blocks, until_ns) {
            self.counters.pins_refused += 1;
        }
        self.sequences[index].retained = true;
    }

    /// The prefix's time counts from the last use of it, and this one ends now.
    pub(super) fn retain_again(&mut self, index: usize) {
        if std::mem::take(&mut self.sequences[index].retained) {
            let refused = self.counters.pins_refused;
            self.retain(index);
            self.counters.pins_refused = refused;
        }
    }

    /// Tells the time: pins that are over end.
    pub fn set_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.kv.expire(now_ns);
    }
}
