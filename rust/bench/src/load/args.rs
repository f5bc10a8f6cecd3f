//! The flags of `octavo-bench load`, named as in `vllm bench serve` where both have them.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::slo::Slo;
use super::workload::IdRange;

/// Shown under the flags.
const EXAMPLES: &str = "Examples:
  octavo-bench load --num-prompts 64 --max-concurrency 16 --input-len 128 --output-len 128
  octavo-bench load --request-rate 4 --burstiness 0.5 --goodput ttft:500 tpot:50
  octavo-bench load --ramp rate --goodput ttft:500 tpot:50 --json -";

/// Drive any OpenAI-compatible server and measure what its users would see
///
/// Every time is measured from the moment a request was scheduled to arrive, whether or not it could be sent
/// then, so a server that stalls cannot hide the requests that piled up behind the stall.
///
/// TTFT: scheduled arrival to the first output. ITL: gaps between later events of one stream. TPOT: (last event -
/// first event) / (output tokens - 1). E2EL: scheduled arrival to the end of the stream. Output tokens are the
/// server's own usage count; where it sends none, the token ids or else the events of the stream are counted, and
/// the report says so.
///
/// Exit code: 0; 1 if the server cannot be measured or any request failed; 2 for a bad command line.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct LoadArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    #[command(flatten)]
    pub workload: WorkloadArgs,
    #[command(flatten)]
    pub arrivals: ArrivalArgs,
    #[command(flatten)]
    pub ramp: RampArgs,
    /// Requests sent, one after another, before measuring starts
    #[arg(long, default_value_t = 1, help_heading = "Measuring")]
    pub num_warmups: u32,
    /// Objectives in milliseconds that a good request meets: ttft, tpot, e2el
    #[arg(long, value_name = "KEY:MS", num_args = 1.., help_heading = "Measuring")]
    pub goodput: Vec<Slo>,
    /// Seed of prompts, lengths and arrivals: the same seed sends the same load
    #[arg(long, default_value_t = 0, help_heading = "Measuring")]
    pub seed: u64,
    /// Write one JSON object to this file or, without a name, to standard output (the table then goes to standard
    /// error)
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", help_heading = "Measuring")]
    pub json: Option<String>,
}

/// Which server, and how to ask it.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Server")]
pub struct ServerArgs {
    /// Such as http://127.0.0.1:8000; instead of --host and --port
    #[arg(long)]
    pub base_url: Option<String>,
    /// Host of the server
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// Port of the server
    #[arg(long, default_value_t = 8000)]
    pub port: u16,
    /// Route: /v1/completions, /v1/chat/completions or a path that ends so
    #[arg(long, default_value = "/v1/completions")]
    pub endpoint: String,
    /// Model to ask for [default: the first that /v1/models lists]
    #[arg(long)]
    pub model: Option<String>,
    /// Sent as a bearer token
    #[arg(long, env = "OPENAI_API_KEY", hide_env_values = true)]
    pub api_key: Option<String>,
    /// Header of every request; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub header: Vec<String>,
    /// JSON object merged into every request body
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub extra_body: String,
    /// Sampling temperature
    #[arg(long, default_value_t = 0.0)]
    pub temperature: f64,
    /// Ask the server to go on past the end-of-sequence token, so that every output has its full length
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub ignore_eos: bool,
    /// Wait this long for the server to answer /v1/models before giving up, seconds
    #[arg(long, default_value_t = 0.0)]
    pub ready_check_timeout_sec: f64,
    /// A request that takes longer has failed, seconds
    #[arg(long, default_value_t = 600.0)]
    pub timeout: f64,
}

/// What to ask.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Workload")]
pub struct WorkloadArgs {
    /// Requests to send (conversations, with --turns)
    #[arg(long, default_value_t = 100)]
    pub num_prompts: u32,
    /// Tokens of a random prompt, without the shared prefix
    #[arg(long, visible_alias = "random-input-len", default_value_t = 1024)]
    pub input_len: u32,
    /// Most tokens to generate
    #[arg(long, visible_alias = "random-output-len", default_value_t = 128)]
    pub output_len: u32,
    /// Draw both lengths uniformly from LEN * (1 - RATIO) to LEN * (1 + RATIO)
    #[arg(long, visible_alias = "random-range-ratio", value_name = "RATIO", default_value_t = 0.0)]
    pub range_ratio: f64,
    /// Tokens that prompts share, put before each prompt
    #[arg(long, visible_alias = "random-prefix-len", default_value_t = 0)]
    pub prefix_len: u32,
    /// How many different shared prefixes there are; each request draws one
    #[arg(long, default_value_t = 1)]
    pub num_prefixes: u32,
    /// Turns of a conversation; each sends all before it, the server's replies included
    #[arg(long, default_value_t = 1)]
    pub turns: u32,
    /// Seconds between a reply and the next turn
    #[arg(long, default_value_t = 0.0)]
    pub think_time: f64,
    /// Random prompts as token ids or as common words, each about one token; auto: ids where the server takes them
    #[arg(long, value_enum, default_value_t = PromptFormat::Auto)]
    pub prompt_format: PromptFormat,
    /// Ids that random prompts draw from: LOW..HIGH, the second excluded
    #[arg(long, default_value = "1000..30000")]
    pub id_range: IdRange,
    /// Prompts from a JSONL file, in its order and again from its start: objects with `prompt` (text or token
    /// ids) or `messages`, and optionally `output_len`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["turns", "prefix_len"])]
    pub dataset_path: Option<PathBuf>,
}

/// How a random prompt is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PromptFormat {
    /// Ids for completions if the server takes them, else words.
    Auto,
    /// A list of token ids.
    Ids,
    /// Text.
    Words,
}

/// When to ask.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Arrivals")]
pub struct ArrivalArgs {
    /// Most requests in flight. Without --request-rate this is a closed loop: each reply makes room for the next
    #[arg(long, visible_alias = "concurrency", value_name = "N")]
    pub max_concurrency: Option<u32>,
    /// Mean arrivals a second; inf sends everything at once, or as --max-concurrency lets it
    #[arg(long, default_value_t = f64::INFINITY)]
    pub request_rate: f64,
    /// Shape of the gamma distribution of gaps: 1 is Poisson, below 1 comes in bursts, above 1 is steadier, inf is a
    /// metronome
    #[arg(long, default_value_t = 1.0)]
    pub burstiness: f64,
}

/// Looking for the knee.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Ramp")]
pub struct RampArgs {
    /// Find the highest rate or concurrency that still meets --goodput: double until it does not, then bisect
    #[arg(long, value_enum, requires = "goodput")]
    pub ramp: Option<RampOver>,
    /// First level of the ramp
    #[arg(long, default_value_t = 1.0)]
    pub ramp_start: f64,
    /// The ramp goes no higher
    #[arg(long, default_value_t = 1024.0)]
    pub ramp_max: f64,
    /// Bisect until the knee is known within this share of itself
    #[arg(long, default_value_t = 0.1)]
    pub ramp_tolerance: f64,
    /// Share of a level's requests that must be good for the level to pass
    #[arg(long, default_value_t = 0.9)]
    pub ramp_pass_share: f64,
    /// A level of a rate sends for this long, seconds, and at least 16 requests (a level of a concurrency: 4 requests a
    /// place, at least 16); --num-prompts is not used
    #[arg(long, default_value_t = 10.0)]
    pub ramp_level_seconds: f64,
}

/// What the ramp raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RampOver {
    /// Arrivals a second.
    Rate,
    /// Requests in flight.
    Concurrency,
}
