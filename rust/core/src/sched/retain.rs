//! Keeping the prefixes of requests that ask for it.

use super::scheduler::Scheduler;

impl Scheduler {
    /// Pins the prefixes that a running sequence is to keep, as they come into the
    /// prefix cache.
    pub(super) fn retain(&mut self, index: usize) {
        let sequence = &mut self.sequences[index];
        while let Some(retain) = sequence.retain.get(sequence.retained) {
            let blocks = (retain.tokens as usize).min(sequence.prompt_len) / self.block_size;
            if sequence.lease.cached() < blocks {
                break;
            }
            let until_ns = self.now_ns.saturating_add(retain.ttl_ns);
            self.counters.pins_refused += u64::from(!self.kv.pin(&sequence.lease, blocks, until_ns));
            sequence.retained += 1;
        }
    }

    /// The prefixes' time counts from their last use, and this one ends now.
    pub(super) fn retain_again(&mut self, index: usize) {
        let sequence = &mut self.sequences[index];
        if sequence.retained > 0 {
            let refused = self.counters.pins_refused;
            sequence.retained = 0;
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
