//! Counters and histograms in Prometheus' text format 0.0.4.
//!
//! Names are those that dashboards for this kind of server already read, so the
//! prefix is `vllm:`. What the step loop measures goes into histograms of its
//! own ([`Recorder`]) that are merged once a step; what the core counts is read
//! when somebody asks.

mod buckets;
mod recorder;
mod report;

use octavo_core::{Error, FinishReason, Result, Stats};
use parking_lot::Mutex;
use prometheus::{
    Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, Opts, Registry, TextEncoder, core::Collector,
};

pub use self::recorder::{Progress, Recorder};
pub use self::report::Reporter;

/// Value of the label `engine`: there is one.
const ENGINE: &str = "0";

/// All metrics of one served model.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    gauges: Gauges,
    counters: Counters,
    histograms: Histograms,
    /// The core's counts when they were last read.
    seen: Mutex<Stats>,
}

#[derive(Debug)]
struct Gauges {
    running: Gauge,
    waiting: Gauge,
    kv_usage: Gauge,
    pinned: Gauge,
}

#[derive(Debug)]
struct Counters {
    prefix_queries: IntCounter,
    prefix_hits: IntCounter,
    pins_refused: IntCounter,
    preemptions: IntCounter,
    prompt_tokens: IntCounter,
    prompt_tokens_cached: IntCounter,
    generation_tokens: IntCounter,
    corrupted: IntCounter,
    kv_events_lost: IntCounter,
    rejections: IntCounterVec,
    success: IntCounterVec,
}

#[derive(Debug)]
struct Histograms {
    time_to_first_token: Histogram,
    inter_token_latency: Histogram,
    time_per_output_token: Histogram,
    e2e_latency: Histogram,
    queue_time: Histogram,
    inference_time: Histogram,
    prefill_time: Histogram,
    decode_time: Histogram,
    prompt_tokens: Histogram,
    generation_tokens: Histogram,
    params_max_tokens: Histogram,
    prefill_computed: Histogram,
    params_n: Histogram,
    iteration_tokens: Histogram,
}

/// Makes metrics with the base labels and registers them.
struct Maker<'a> {
    registry: &'a Registry,
    model: &'a str,
}

impl Maker<'_> {
    fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(format!("vllm:{name}"), help)
            .const_label("model_name", self.model)
            .const_label("engine", ENGINE)
    }

    fn register<M: Collector + Clone + 'static>(&self, metric: prometheus::Result<M>) -> Result<M> {
        let metric = metric.map_err(|error| internal(&error))?;
        self.registry.register(Box::new(metric.clone())).map_err(|error| internal(&error))?;
        Ok(metric)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<Gauge> {
        self.register(Gauge::with_opts(self.opts(name, help)))
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter> {
        self.register(IntCounter::with_opts(self.opts(name, help)))
    }

    fn counter_by(&self, name: &str, help: &str, label: &str) -> Result<IntCounterVec> {
        self.register(IntCounterVec::new(self.opts(name, help), &[label]))
    }

    fn histogram(&self, name: &str, help: &str, buckets: Vec<f64>) -> Result<Histogram> {
        let opts = HistogramOpts { common_opts: self.opts(name, help), buckets };
        self.register(Histogram::with_opts(opts))
    }
}

fn internal(error: &prometheus::Error) -> Error {
    Error::internal(format!("a metric could not be made: {error}"))
}

impl Metrics {
    /// Metrics of a model served as `model`, whose sequences have at most
    /// `max_model_len` tokens.
    ///
    /// # Errors
    /// Internal: a name is not a metric's.
    pub fn new(model: &str, max_model_len: u32) -> Result<Self> {
        let registry = Registry::new();
        let make = Maker { registry: &registry, model };
        Ok(Self {
            gauges: Gauges::new(&make)?,
            counters: Counters::new(&make)?,
            histograms: Histograms::new(&make, max_model_len)?,
            seen: Mutex::default(),
            registry,
        })
    }

    /// A recorder for the step loop.
    pub(crate) fn recorder(&self) -> Recorder {
        Recorder::new(&self.histograms, &self.counters)
    }

    /// Notes a call refused for `reason`: `queue_full` or `deadline`.
    pub(crate) fn admission_rejected(&self, reason: &str) {
        self.counters.rejections.with_label_values(&[reason]).inc();
    }

    /// Notes a batch of KV events that is not published.
    pub(crate) fn kv_events_lost(&self) {
        self.counters.kv_events_lost.inc();
    }

    /// Notes a call's `n`.
    pub(crate) fn called(&self, n: u32) {
        self.histograms.params_n.observe(f64::from(n));
    }

    /// Brings gauges and the core's counts up to date with `stats`.
    pub fn update(&self, stats: &Stats) {
        let mut seen = self.seen.lock();
        self.gauges.running.set(stats.running as f64);
        self.gauges.waiting.set(stats.waiting as f64);
        self.gauges.kv_usage.set(stats.kv_usage);
        self.gauges.pinned.set(stats.blocks_pinned as f64 / stats.blocks_total as f64);
        self.counters.pins_refused.inc_by(stats.pins_refused.saturating_sub(seen.pins_refused));
        self.counters
            .prefix_queries
            .inc_by(stats.prefix_query_tokens.saturating_sub(seen.prefix_query_tokens));
        self.counters.prefix_hits.inc_by(stats.prefix_hit_tokens.saturating_sub(seen.prefix_hit_tokens));
        self.counters.preemptions.inc_by(stats.preemptions.saturating_sub(seen.preemptions));
        *seen = *stats;
    }

    /// All metrics as text.
    ///
    /// # Errors
    /// Internal: the encoder failed.
    pub fn encode(&self) -> Result<String> {
        TextEncoder::new().encode_to_string(&self.registry.gather()).map_err(|error| internal(&error))
    }
}

impl Gauges {
    fn new(make: &Maker<'_>) -> Result<Self> {
        Ok(Self {
            running: make.gauge("num_requests_running", "Sequences in execution batches")?,
            waiting: make.gauge("num_requests_waiting", "Sequences waiting to be admitted")?,
            kv_usage: make.gauge("kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1")?,
            pinned: make
                .gauge("kv_cache_pinned_perc", "Share of KV blocks that requests keep for a time, 0 to 1")?,
        })
    }
}

impl Counters {
    fn new(make: &Maker<'_>) -> Result<Self> {
        Ok(Self {
            prefix_queries: make
                .counter("prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache")?,
            prefix_hits: make
                .counter("prefix_cache_hits_total", "Prompt tokens found in the prefix cache")?,
            pins_refused: make.counter(
                "kv_cache_pins_refused_total",
                "Prefixes not kept because as much is kept as may be",
            )?,
            preemptions: make.counter("num_preemptions_total", "Sequences preempted")?,
            prompt_tokens: make.counter("prompt_tokens_total", "Prompt tokens of started sequences")?,
            prompt_tokens_cached: make
                .counter("prompt_tokens_cached_total", "Prompt tokens read from the cache")?,
            generation_tokens: make.counter("generation_tokens_total", "Tokens sampled")?,
            corrupted: make
                .counter("corrupted_requests_total", "Sequences ended by logits that are not finite")?,
            kv_events_lost: make.counter(
                "kv_event_batches_lost_total",
                "Batches of KV events not published because the queue was full",
            )?,
            rejections: make.counter_by(
                "admission_rejections_total",
                "Calls refused at a queue limit or for their deadline",
                "reason",
            )?,
            success: make.counter_by("request_success_total", "Sequences ended", "finished_reason")?,
        })
    }

    /// The counter of sequences that end for `reason`.
    fn ended(&self, reason: FinishReason) -> IntCounter {
        let label = match reason {
            FinishReason::Eos | FinishReason::StopToken(_) => "stop",
            FinishReason::Length => "length",
            FinishReason::Abort => "abort",
            FinishReason::Timeout => "timeout",
            FinishReason::Error => "error",
        };
        self.success.with_label_values(&[label])
    }
}

impl Histograms {
    fn new(make: &Maker<'_>, max_model_len: u32) -> Result<Self> {
        let latency = |name, help| make.histogram(name, help, buckets::REQUEST_SECONDS.to_vec());
        let token_time = |name, help| make.histogram(name, help, buckets::TOKEN_SECONDS.to_vec());
        let tokens = |name, help| make.histogram(name, help, buckets::one_two_five(max_model_len));
        Ok(Self {
            time_to_first_token: make.histogram(
                "time_to_first_token_seconds",
                "From arrival to the first token",
                buckets::FIRST_TOKEN_SECONDS.to_vec(),
            )?,
            inter_token_latency: token_time(
                "inter_token_latency_seconds",
                "Between two tokens of a sequence",
            )?,
            time_per_output_token: token_time(
                "request_time_per_output_token_seconds",
                "Mean time a token after the first, by sequence",
            )?,
            e2e_latency: latency("e2e_request_latency_seconds", "From arrival to the end")?,
            queue_time: latency("request_queue_time_seconds", "From arrival to the first step")?,
            inference_time: latency("request_inference_time_seconds", "From the first step to the end")?,
            prefill_time: latency("request_prefill_time_seconds", "From the first step to the first token")?,
            decode_time: latency("request_decode_time_seconds", "From the first token to the end")?,
            prompt_tokens: tokens("request_prompt_tokens", "Prompt tokens a sequence")?,
            generation_tokens: tokens("request_generation_tokens", "Tokens sampled a sequence")?,
            params_max_tokens: tokens("request_params_max_tokens", "Most output tokens asked for")?,
            prefill_computed: tokens(
                "request_prefill_kv_computed_tokens",
                "Prompt tokens computed rather than read from the cache",
            )?,
            params_n: make.histogram("request_params_n", "Choices asked for", buckets::CHOICES.to_vec())?,
            iteration_tokens: make.histogram(
                "iteration_tokens_total",
                "Tokens computed a step",
                buckets::STEP_TOKENS.to_vec(),
            )?,
        })
    }
}
