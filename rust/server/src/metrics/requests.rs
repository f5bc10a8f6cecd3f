//! What is measured of each request.

use octavo_core::{CachedTokens, EngineLimits, FinishReason, Result};
use prometheus::{Histogram, IntCounter, IntCounterVec};

use super::buckets;
use super::make::Maker;

/// Counters and histograms of requests.
#[derive(Debug)]
pub(super) struct RequestMetrics {
    pub prompt_tokens_total: IntCounter,
    pub prompt_tokens_cached_total: IntCounter,
    pub generation_tokens_total: IntCounter,
    pub sources: Sources,
    pub success: IntCounterVec,
    pub corrupted: IntCounter,
    pub time_to_first_token: Histogram,
    pub inter_token_latency: Histogram,
    pub time_per_output_token: Histogram,
    pub e2e_latency: Histogram,
    pub queue_time: Histogram,
    pub inference_time: Histogram,
    pub prefill_time: Histogram,
    pub decode_time: Histogram,
    pub prompt_tokens: Histogram,
    pub generation_tokens: Histogram,
    pub max_generation_tokens: Histogram,
    pub params_max_tokens: Histogram,
    pub params_n: Histogram,
    pub prefill_computed: Histogram,
    pub preemptions: Histogram,
    pub iteration_tokens: Histogram,
}

/// Where prompt tokens came from. Tiers that are not there are `None`.
#[derive(Clone, Debug)]
pub(super) struct Sources {
    computed: IntCounter,
    cache_hit: IntCounter,
    transfer: Option<IntCounter>,
    device: IntCounter,
    host: Option<IntCounter>,
    disk: Option<IntCounter>,
}

impl RequestMetrics {
    pub fn new(make: Maker<'_>, limits: &EngineLimits) -> Result<Self> {
        let latency = |name, help| make.histogram(name, help, buckets::REQUEST_SECONDS.to_vec());
        let token_time = |name, help| make.histogram(name, help, buckets::TOKEN_SECONDS.to_vec());
        let tokens = |name, help| make.histogram(name, help, buckets::one_two_five(limits.max_model_len));
        Ok(Self {
            prompt_tokens_total: make.counter("prompt_tokens_total", "Prompt tokens of started sequences")?,
            prompt_tokens_cached_total: make
                .counter("prompt_tokens_cached_total", "Prompt tokens read from the cache, of all tiers")?,
            generation_tokens_total: make.counter("generation_tokens_total", "Tokens sampled")?,
            sources: Sources::new(make, limits)?,
            success: make.counter_by(
                "request_success_total",
                "Sequences that ended, by reason",
                &["finished_reason"],
            )?,
            corrupted: make
                .counter("corrupted_requests_total", "Sequences ended by logits that are not finite")?,
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
            max_generation_tokens: tokens(
                "request_max_num_generation_tokens",
                "Tokens of the longest choice, by prompt",
            )?,
            params_max_tokens: tokens(
                "request_params_max_tokens",
                "Most output tokens asked for, within the context",
            )?,
            params_n: make.histogram("request_params_n", "Choices asked for", buckets::CHOICES.to_vec())?,
            prefill_computed: tokens(
                "request_prefill_kv_computed_tokens",
                "Prompt tokens computed rather than read from the cache",
            )?,
            preemptions: make.histogram(
                "request_num_preemptions",
                "Times that a sequence was preempted",
                buckets::PREEMPTIONS.to_vec(),
            )?,
            iteration_tokens: make.histogram(
                "iteration_tokens_total",
                "Tokens computed a step",
                buckets::STEP_TOKENS.to_vec(),
            )?,
        })
    }

    pub fn ended(&self, reason: FinishReason) -> IntCounter {
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

impl Sources {
    fn new(make: Maker<'_>, limits: &EngineLimits) -> Result<Self> {
        let (has_host, has_disk) = (limits.host_blocks > 0, limits.disk_tier);
        let all = make.counter_by(
            "prompt_tokens_by_source_total",
            "Prompt tokens of started sequences: computed, on the device, or brought there from host memory or disk",
            &["source"],
        )?;
        let cached = make.counter_by(
            "prompt_tokens_cached_by_source_total",
            "Prompt tokens read from the cache, by the tier that had them",
            &["source"],
        )?;
        Ok(Self {
            computed: all.with_label_values(&["local_compute"]),
            cache_hit: all.with_label_values(&["local_cache_hit"]),
            transfer: has_host.then(|| all.with_label_values(&["external_kv_transfer"])),
            device: cached.with_label_values(&["device"]),
            host: has_host.then(|| cached.with_label_values(&["host"])),
            disk: has_disk.then(|| cached.with_label_values(&["disk"])),
        })
    }

    /// Notes the first start of a sequence.
    pub fn started(&self, prompt_tokens: u32, cached: CachedTokens) {
        let add = |counter: &IntCounter, tokens: u32| counter.inc_by(u64::from(tokens));
        let CachedTokens { device, host, disk } = cached;
        add(&self.computed, prompt_tokens - cached.total());
        add(&self.cache_hit, device);
        add(&self.device, device);
        let below = [(&self.transfer, host + disk), (&self.host, host), (&self.disk, disk)];
        for (counter, tokens) in below {
            if let Some(counter) = counter {
                add(counter, tokens);
            }
        }
    }
}
