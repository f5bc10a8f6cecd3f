//! How long a request may take under first come, first served.
//!
//! In every step the oldest unfinished request gets its next token or its next
//! chunk, for nobody displaces it and it is never preempted. So a request ends
//! within the steps that all requests before it, and it itself, would take one
//! after another, each computed anew once (it may have been preempted before it
//! became the oldest).

use octavo_core::{EngineLimits, EngineRequest};

/// Steps that one after another would take.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    chunk: u64,
    depth: u64,
    context_len: u64,
    /// Of all unfinished requests.
    outstanding: u64,
}

impl Bound {
    /// For an idle engine.
    pub fn new(limits: &EngineLimits) -> Self {
        // Single tokens of other sequences go first; the rest of the budget is cut to whole blocks.
        let spare = limits.max_num_batched_tokens.saturating_sub(limits.max_num_seqs + limits.block_size);
        let threshold = match limits.long_prefill_token_threshold {
            0 => u32::MAX,
            most => most.saturating_sub(limits.block_size),
        };
        Self {
            chunk: u64::from(spare.min(threshold).max(1)),
            depth: u64::from(limits.pipeline_depth),
            context_len: u64::from(limits.context_len()),
            outstanding: 0,
        }
    }

    /// Counts a request in; returns the step by which it must have ended.
    pub fn arrive(&mut self, request: &EngineRequest, step: u64) -> u64 {
        self.outstanding += self.steps(request);
        step + self.outstanding
    }

    /// Counts a request out.
    pub fn end(&mut self, request: &EngineRequest) {
        self.outstanding -= self.steps(request);
    }

    fn steps(&self, request: &EngineRequest) -> u64 {
        let prompt = request.prompt.len() as u64;
        let output = u64::from(request.stop.max_tokens).min(self.context_len.saturating_sub(prompt));
        // Its chunks, its tokens, its chunks anew, and the steps in flight around each change.
        2 * (prompt + output).div_ceil(self.chunk) + output + 4 * self.depth
    }
}
