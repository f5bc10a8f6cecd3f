//! Counters for metrics, which only grow (type `u64`), and levels.

use crate::event::FinishReason;

/// A snapshot; cheap to take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// Requests that hold a slot.
    pub running: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// Those of them that were passed over when a step was last planned, because what they
    /// share is computed now or comes from disk.
    pub waiting_deferred: usize,
    /// KV blocks on the device.
    pub blocks_total: usize,
    /// Blocks that requests hold.
    pub blocks_used: usize,
    /// Blocks that only the prefix cache holds.
    pub blocks_cached: usize,
    /// Blocks of prefixes that requests asked to keep.
    pub blocks_pinned: usize,
    /// Slots of the host tier.
    pub host_blocks_total: usize,
    /// Those of them that have content.
    pub host_blocks_used: usize,
    /// Those of them that copies and transfers use now.
    pub host_blocks_held: usize,
    /// Blocks known to be on disk.
    pub disk_blocks: usize,
    /// `blocks_used / blocks_total`, 0 to 1.
    pub kv_usage: f64,
    /// Tokens looked up in the prefix cache.
    pub prefix_query_tokens: u64,
    /// Those of them that were found.
    pub prefix_hit_tokens: u64,
    /// Those of them that the host tier had.
    pub host_hit_tokens: u64,
    /// Those of them that were fetched from disk for the request that found them.
    pub disk_hit_tokens: u64,
    /// Blocks copied to the host tier.
    pub host_saved_blocks: u64,
    /// Blocks copied from the host tier.
    pub host_loaded_blocks: u64,
    /// Time of the copies to the host tier, microseconds.
    pub host_save_us: u64,
    /// Time of the copies from the host tier, microseconds.
    pub host_load_us: u64,
    /// Blocks that the device gave up and that found no place in the host tier.
    pub host_saves_failed: u64,
    /// Blocks on disk that were asked for and found no place in the host tier.
    pub host_fetches_failed: u64,
    /// Prefixes that were not kept because too much is kept already.
    pub pins_refused: u64,
    /// Running requests put back to be computed again.
    pub preemptions: u64,
    /// Prompt tokens computed, those of a recomputation included.
    pub prompt_tokens_computed: u64,
    /// Prompt tokens that came from the cache at a request's first start.
    pub prompt_tokens_cached: u64,
    /// Tokens given out.
    pub generated_tokens: u64,
    /// Requests that ended, by reason.
    pub finished: Finished,
    /// Steps committed.
    pub steps: u64,
}

/// Requests that ended, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// At an end-of-sequence token.
    pub eos: u64,
    /// At one of the request's own stop tokens.
    pub stop_token: u64,
    /// At a length limit.
    pub length: u64,
    /// By their door.
    pub abort: u64,
    /// At a deadline.
    pub timeout: u64,
    /// Because the device could not compute them.
    pub error: u64,
}

impl Finished {
    /// Counts one.
    pub(crate) fn count(&mut self, reason: FinishReason) {
        match reason {
            FinishReason::Eos => self.eos += 1,
            FinishReason::StopToken(_) => self.stop_token += 1,
            FinishReason::Length => self.length += 1,
            FinishReason::Abort => self.abort += 1,
            FinishReason::Timeout => self.timeout += 1,
            FinishReason::Error => self.error += 1,
        }
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.eos + self.stop_token + self.length + self.abort + self.timeout + self.error
    }
}
