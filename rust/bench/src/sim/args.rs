//! The flags of `octavo-bench sim`, named as those of `octavo serve` where both have them.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use octavo_core::{EngineLimits, Policy};

/// Shown under the flags.
const EXAMPLES: &str = "Examples:
  octavo-bench sim --num-requests 1000 --request-rate 20 --input-len 512 --output-len 128
  octavo-bench sim --num-requests 5000 --num-blocks 2000 --abort-share 0.1 --prefix-len 256 --num-prefixes 8
  octavo-bench sim --running 256 --steps 1000 --context 8192 --json";

/// Run the real scheduler and memory manager against a fake device in virtual time
///
/// Requests arrive, run, are aborted and end as on a server, but a step takes as long as --step-us, --token-us and
/// --kv-token-us say, so a million requests take minutes and the same seed gives the same report. The device checks
/// the frame protocol and draws tokens from what it reads through the block tables. After every step the laws of
/// memory and scheduling are checked, and of every request that it starts once, ends exactly once, gets exactly the
/// tokens that it would get alone, and ends within the steps of the work that its policy lets go before it.
///
/// Figures named core_* are real time spent in the core (plan and commit); all others are virtual.
///
/// With --running N no request arrives or ends: N sequences of --context tokens decode for --steps steps, and the
/// core's time is measured.
///
/// Exit code: 0; 2 for a bad command line or trace; 3 if a law is broken.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct SimArgs {
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(flatten)]
    pub trace: TraceArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub steady: SteadyArgs,
    /// When the laws are checked; checking costs O(blocks)
    #[arg(long, value_enum, default_value_t = Check::Every, help_heading = "Measuring")]
    pub check: Check,
    /// Write one JSON object to this file or, without a name, to standard output (the table then goes to standard
    /// error)
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", help_heading = "Measuring")]
    pub json: Option<String>,
}

/// When the laws are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Check {
    /// After every step.
    Every,
    /// After the last step.
    End,
}

/// The engine.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Engine")]
pub struct EngineArgs {
    /// KV blocks; few of them make preemptions
    #[arg(long, visible_alias = "num-gpu-blocks-override", default_value_t = 8192)]
    pub num_blocks: u32,
    /// KV blocks that the host keeps when the device gives them up; 0 is no host tier
    #[arg(long, default_value_t = 0)]
    pub host_blocks: u32,
    /// What loading a block from the host costs, in prompt tokens computed in the same time
    #[arg(long, default_value_t = 1.0)]
    pub host_load_tokens: f32,
    /// Tokens in a KV block
    #[arg(long, default_value_t = 16)]
    pub block_size: u32,
    /// Longest sequence, prompt and output
    #[arg(long, default_value_t = 32_768)]
    pub max_model_len: u32,
    /// Most sequences in one step
    #[arg(long, default_value_t = 256)]
    pub max_num_seqs: u32,
    /// Most tokens computed in one step
    #[arg(long, default_value_t = 2048)]
    pub max_num_batched_tokens: u32,
    /// Most prompt tokens of one request in one step; 0 is no limit
    #[arg(long, default_value_t = 0)]
    pub long_prefill_token_threshold: u32,
    /// Most requests that wait; more are refused
    #[arg(long, default_value_t = 1 << 24)]
    pub max_num_queued_reqs: u32,
    /// Share of blocks kept free when a request is admitted
    #[arg(long, default_value_t = 0.0)]
    pub watermark: f32,
    /// Tokens in the vocabulary that prompts and outputs are drawn from
    #[arg(long, default_value_t = super::request::VOCAB_SIZE)]
    pub vocab_size: u32,
    /// Reuse the KV of shared prefixes
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub enable_prefix_caching: bool,
    /// Order of the waiting queue
    #[arg(long, value_enum, default_value_t = PolicyName::Fcfs)]
    pub scheduling_policy: PolicyName,
    /// Steps in flight: 2 plans a step while another is computed
    #[arg(long, default_value_t = 2)]
    pub pipeline_depth: u32,
}

/// A scheduling policy by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyName {
    /// First come, first served.
    Fcfs,
    /// Lower priority numbers first.
    Priority,
    /// Longest cached prefix first.
    Lpm,
    /// Fair share of tokens by tenant.
    Fair,
}

impl EngineArgs {
    /// The limits for a vocabulary of the simulation's.
    pub fn limits(&self) -> EngineLimits {
        EngineLimits {
            block_size: self.block_size,
            num_blocks: self.num_blocks,
            groups: Vec::new(),
            max_model_len: self.max_model_len,
            max_num_seqs: self.max_num_seqs,
            max_num_batched_tokens: self.max_num_batched_tokens,
            long_prefill_token_threshold: self.long_prefill_token_threshold,
            max_num_queued_reqs: self.max_num_queued_reqs,
            max_logprobs: 0,
            vocab_size: self.vocab_size,
            watermark: self.watermark,
            enable_prefix_caching: self.enable_prefix_caching,
            max_pinned_share: 0.0,
            kv_events: false,
            host_blocks: self.host_blocks,
            host_load_tokens: self.host_load_tokens,
            disk_tier: false,
            tenant_weights: Vec::new(),
            policy: match self.scheduling_policy {
                PolicyName::Fcfs => Policy::Fcfs,
                PolicyName::Priority => Policy::Priority,
                PolicyName::Lpm => Policy::LongestPrefix,
                PolicyName::Fair => Policy::FairShare,
            },
            pipeline_depth: self.pipeline_depth,
        }
    }
}

/// The requests.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Trace")]
pub struct TraceArgs {
    /// A recorded trace instead of a random one: JSONL objects with `arrival_s`, `input_len` or `prompt` (token ids),
    /// `output_len`, and optionally `priority`, `tenant`, `stop_token_ids`, `abort_after_s`, `prefix_group` and
    /// `prefix_len`
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Write the trace with all its token ids to a file for --trace
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Requests of a random trace
    #[arg(long, default_value_t = 1000)]
    pub num_requests: u64,
    /// Prompt tokens, without the shared prefix
    #[arg(long, default_value_t = 512)]
    pub input_len: u32,
    /// Tokens to generate
    #[arg(long, default_value_t = 128)]
    pub output_len: u32,
    /// Draw both lengths uniformly from LEN * (1 - RATIO) to LEN * (1 + RATIO)
    #[arg(long, value_name = "RATIO", default_value_t = 0.0)]
    pub range_ratio: f64,
    /// Tokens that prompts of one group share
    #[arg(long, default_value_t = 0)]
    pub prefix_len: u32,
    /// Groups that share a prefix; each request draws one
    #[arg(long, default_value_t = 1)]
    pub num_prefixes: u32,
    /// Mean arrivals a second; inf is all at once
    #[arg(long, default_value_t = f64::INFINITY)]
    pub request_rate: f64,
    /// Shape of the gamma distribution of gaps: 1 is Poisson, below 1 comes in bursts, inf is a metronome
    #[arg(long, default_value_t = 1.0)]
    pub burstiness: f64,
    /// Share of requests that are aborted, each at a time drawn from the --abort-within seconds after its arrival
    #[arg(long, default_value_t = 0.0)]
    pub abort_share: f64,
    /// Latest abort after the arrival, seconds
    #[arg(long, default_value_t = 10.0)]
    pub abort_within: f64,
    /// Priorities are drawn from 0 to N - 1
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub num_priorities: u32,
    /// Tenants are drawn from 0 to N - 1
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub num_tenants: u32,
    /// Requests end at the token ids from 0 to N - 1, so the smaller the vocabulary, the sooner
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub num_stop_ids: u32,
    /// Seed of the trace
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

/// The device.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Device")]
pub struct DeviceArgs {
    /// Microseconds of any step
    #[arg(long, default_value_t = 6000.0)]
    pub step_us: f64,
    /// Microseconds of each token computed
    #[arg(long, default_value_t = 30.0)]
    pub token_us: f64,
    /// Microseconds of each token read from the KV cache
    #[arg(long, default_value_t = 0.04)]
    pub kv_token_us: f64,
    /// Microseconds of each KV block copied to or from the host
    #[arg(long, default_value_t = 20.0)]
    pub copy_us: f64,
    /// Draw each token from all KV of its sequence, not the last token's alone: finds any wrong block, but costs
    /// O(length) a token
    #[arg(long)]
    pub deep_reads: bool,
    /// The device dies every N steps and loses its memory, but not the host's; 0 is never
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub kill_every: u64,
}

/// The steady state.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Steady state")]
pub struct SteadyArgs {
    /// Measure N sequences that decode, instead of a trace; the flags of engine, trace and device have no effect then
    #[arg(long, value_name = "N")]
    pub running: Option<u32>,
    /// Steps to measure
    #[arg(long, value_name = "M", default_value_t = 1000, requires = "running")]
    pub steps: u32,
    /// Tokens of each sequence when measuring starts
    #[arg(long, value_name = "TOKENS", default_value_t = 1024, requires = "running")]
    pub context: u32,
}
