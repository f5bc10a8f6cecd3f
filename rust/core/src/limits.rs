//! The resolved numbers that bound an engine. No defaults here: options are
//! declared and resolved in `python/octavo/config.py`, facts come from the worker.

/// How waiting requests are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// First come, first served.
    Fcfs,
    /// Lower `priority` first; a running request of higher number may be
    /// preempted for a waiting one of lower number.
    Priority,
}

/// Everything the core must know about the machine and the options.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineLimits {
    /// Tokens in a KV block.
    pub block_size: u32,
    /// KV blocks on the device.
    pub num_blocks: u32,
    /// Longest sequence (prompt and output), tokens.
    pub max_model_len: u32,
    /// Most sequences in one step, and most slots.
    pub max_num_seqs: u32,
    /// Most tokens computed in one step.
    pub max_num_batched_tokens: u32,
    /// Most prompt tokens of one request in one step; 0 is no limit.
    pub long_prefill_token_threshold: u32,
    /// Most requests waiting to be admitted; more are refused as overload.
    pub max_num_queued_reqs: u32,
    /// Most alternatives in log-probabilities.
    pub max_logprobs: u32,
    /// Vocabulary size.
    pub vocab_size: u32,
    /// Share of blocks kept free when a request is admitted, 0 to 1.
    pub watermark: f32,
    /// Reuse the KV of shared prefixes.
    pub enable_prefix_caching: bool,
    /// Order of the waiting queue.
    pub policy: Policy,
    /// Most steps planned but not yet committed: 1 or 2.
    pub pipeline_depth: u32,
}
