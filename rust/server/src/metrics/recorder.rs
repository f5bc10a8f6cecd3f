//! What the step loop measures of each request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use octavo_core::{CachedTokens, FinishReason};
use prometheus::IntCounter;
use prometheus::local::{LocalHistogram, LocalIntCounter};

use super::requests::{RequestMetrics, Sources};
use super::tenants::Tenant;

/// Histograms and counters of the loop's own, merged by [`Recorder::flush`].
#[derive(Debug)]
pub struct Recorder {
    time_to_first_token: LocalHistogram,
    inter_token_latency: LocalHistogram,
    time_per_output_token: LocalHistogram,
    e2e_latency: LocalHistogram,
    queue_time: LocalHistogram,
    inference_time: LocalHistogram,
    prefill_time: LocalHistogram,
    decode_time: LocalHistogram,
    prompt_tokens: LocalHistogram,
    generation_tokens: LocalHistogram,
    max_generation_tokens: LocalHistogram,
    params_max_tokens: LocalHistogram,
    prefill_computed: LocalHistogram,
    preemptions: LocalHistogram,
    iteration_tokens: LocalHistogram,
    prompt_tokens_total: LocalIntCounter,
    prompt_tokens_cached_total: LocalIntCounter,
    generation_tokens_total: LocalIntCounter,
    sources: Sources,
    ended_stop: IntCounter,
    ended_length: IntCounter,
    ended_abort: IntCounter,
    ended_timeout: IntCounter,
    ended_error: IntCounter,
    corrupted: IntCounter,
}

impl Recorder {
    pub(super) fn new(metrics: &RequestMetrics) -> Self {
        Self {
            time_to_first_token: metrics.time_to_first_token.local(),
            inter_token_latency: metrics.inter_token_latency.local(),
            time_per_output_token: metrics.time_per_output_token.local(),
            e2e_latency: metrics.e2e_latency.local(),
            queue_time: metrics.queue_time.local(),
            inference_time: metrics.inference_time.local(),
            prefill_time: metrics.prefill_time.local(),
            decode_time: metrics.decode_time.local(),
            prompt_tokens: metrics.prompt_tokens.local(),
            generation_tokens: metrics.generation_tokens.local(),
            max_generation_tokens: metrics.max_generation_tokens.local(),
            params_max_tokens: metrics.params_max_tokens.local(),
            prefill_computed: metrics.prefill_computed.local(),
            preemptions: metrics.preemptions.local(),
            iteration_tokens: metrics.iteration_tokens.local(),
            prompt_tokens_total: metrics.prompt_tokens_total.local(),
            prompt_tokens_cached_total: metrics.prompt_tokens_cached_total.local(),
            generation_tokens_total: metrics.generation_tokens_total.local(),
            sources: metrics.sources.clone(),
            ended_stop: metrics.ended(FinishReason::Eos),
            ended_length: metrics.ended(FinishReason::Length),
            ended_abort: metrics.ended(FinishReason::Abort),
            ended_timeout: metrics.ended(FinishReason::Timeout),
            ended_error: metrics.ended(FinishReason::Error),
            corrupted: metrics.corrupted.clone(),
        }
    }

    /// Notes a step of `tokens` tokens.
    pub fn step(&self, tokens: usize) {
        self.iteration_tokens.observe(tokens as f64);
    }

    /// Makes what was noted visible.
    pub fn flush(&self) {
        let histograms = [
            &self.time_to_first_token,
            &self.inter_token_latency,
            &self.time_per_output_token,
            &self.e2e_latency,
            &self.queue_time,
            &self.inference_time,
            &self.prefill_time,
            &self.decode_time,
            &self.prompt_tokens,
            &self.generation_tokens,
            &self.max_generation_tokens,
            &self.params_max_tokens,
            &self.prefill_computed,
            &self.preemptions,
            &self.iteration_tokens,
        ];
        histograms.into_iter().for_each(LocalHistogram::flush);
        self.prompt_tokens_total.flush();
        self.prompt_tokens_cached_total.flush();
        self.generation_tokens_total.flush();
    }
}

/// The choices of one prompt. Only the step loop changes it.
#[derive(Debug)]
pub struct Siblings {
    unfinished: AtomicU32,
    longest: AtomicU32,
}

impl Siblings {
    /// Of `n` choices.
    pub fn new(n: u32) -> Self {
        Self { unfinished: AtomicU32::new(n), longest: AtomicU32::new(0) }
    }

    /// One has ended with `generated` tokens; those of the longest, if it was the last.
    fn ended(&self, generated: u32) -> Option<u32> {
        let longest = self.longest.fetch_max(generated, Ordering::Relaxed).max(generated);
        (self.unfinished.fetch_sub(1, Ordering::Relaxed) == 1).then_some(longest)
    }
}

/// Where one request stands in time.
#[derive(Debug)]
pub struct Progress {
    prompt_tokens: u32,
    max_tokens: u32,
    cached_tokens: u32,
    generated: u32,
    preemptions: u32,
    arrived: Instant,
    started: Option<Instant>,
    first_token: Option<Instant>,
    last_token: Instant,
    stopped_by_text: bool,
    siblings: Arc<Siblings>,
    tenant: Option<Arc<Tenant>>,
}

impl Progress {
    /// A request of `prompt_tokens` tokens that arrived at `arrived`, one of
    /// `siblings`.
    pub(crate) fn new(
        prompt_tokens: u32,
        max_tokens: u32,
        arrived: Instant,
        siblings: Arc<Siblings>,
        tenant: Option<Arc<Tenant>>,
    ) -> Self {
        if let Some(tenant) = &tenant {
            tenant.arrived();
        }
        Self {
            prompt_tokens,
            max_tokens,
            cached_tokens: 0,
            generated: 0,
            preemptions: 0,
            arrived,
            started: None,
            first_token: None,
            last_token: arrived,
            stopped_by_text: false,
            siblings,
            tenant,
        }
    }

    /// The door has found a stop string and will abort: this counts as a stop.
    pub fn stopped_by_text(&mut self) {
        self.stopped_by_text = true;
    }

    /// It was put back, to be computed again.
    pub fn preempted(&mut self) {
        self.preemptions += 1;
    }

    /// Tokens of the prompt.
    pub fn prompt_tokens(&self) -> u32 {
        self.prompt_tokens
    }

    /// True once it has a token.
    pub fn has_sampled(&self) -> bool {
        self.first_token.is_some()
    }

    /// First scheduled.
    pub fn started(&mut self, recorder: &Recorder, cached: CachedTokens, now: Instant) {
        self.started = Some(now);
        self.cached_tokens = cached.total();
        let queued_s = seconds(now - self.arrived);
        recorder.queue_time.observe(queued_s);
        recorder.prompt_tokens_total.inc_by(u64::from(self.prompt_tokens));
        recorder.prompt_tokens_cached_total.inc_by(u64::from(self.cached_tokens));
        recorder.sources.started(self.prompt_tokens, cached);
        if let Some(tenant) = &self.tenant {
            tenant.started(self.prompt_tokens, cached, queued_s);
        }
    }

    /// One more token; true for the first.
    pub fn token(&mut self, recorder: &Recorder, now: Instant) -> bool {
        let first = self.first_token.is_none();
        if first {
            self.first_token = Some(now);
            let after_s = seconds(now - self.arrived);
            recorder.time_to_first_token.observe(after_s);
            if let Some(tenant) = &self.tenant {
                tenant.first_token(after_s);
            }
        } else {
            recorder.inter_token_latency.observe(seconds(now - self.last_token));
        }
        self.last_token = now;
        self.generated += 1;
        recorder.generation_tokens_total.inc();
        if let Some(tenant) = &self.tenant {
            tenant.token();
        }
        first
    }

    /// At its end.
    pub fn finished(&self, recorder: &Recorder, reason: FinishReason, now: Instant) {
        match reason {
            FinishReason::Abort if self.stopped_by_text => recorder.ended_stop.inc(),
            FinishReason::Eos | FinishReason::StopToken(_) => recorder.ended_stop.inc(),
            FinishReason::Length => recorder.ended_length.inc(),
            FinishReason::Abort => recorder.ended_abort.inc(),
            FinishReason::Timeout => recorder.ended_timeout.inc(),
            FinishReason::Error => {
                recorder.ended_error.inc();
                recorder.corrupted.inc();
            }
        }
        let e2e_s = seconds(now - self.arrived);
        recorder.e2e_latency.observe(e2e_s);
        if let Some(tenant) = &self.tenant {
            tenant.ended(e2e_s);
        }
        recorder.prompt_tokens.observe(f64::from(self.prompt_tokens));
        recorder.generation_tokens.observe(f64::from(self.generated));
        recorder.params_max_tokens.observe(f64::from(self.max_tokens));
        recorder.preemptions.observe(f64::from(self.preemptions));
        if let Some(longest) = self.siblings.ended(self.generated) {
            recorder.max_generation_tokens.observe(f64::from(longest));
        }
        let Some(started) = self.started else { return };
        recorder.inference_time.observe(seconds(now - started));
        let Some(first) = self.first_token else { return };
        recorder.prefill_computed.observe(f64::from(self.prompt_tokens - self.cached_tokens));
        recorder.prefill_time.observe(seconds(first - started));
        recorder.decode_time.observe(seconds(now - first));
        if self.generated > 1 {
            let mean = seconds(self.last_token - first) / f64::from(self.generated - 1);
            recorder.time_per_output_token.observe(mean);
        }
    }
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}
