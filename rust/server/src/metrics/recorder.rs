//! What the step loop measures of each request.

use std::time::{Duration, Instant};

use octavo_core::FinishReason;
use prometheus::IntCounter;
use prometheus::local::{LocalHistogram, LocalIntCounter};

use super::{Counters, Histograms};

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
    params_max_tokens: LocalHistogram,
    prefill_computed: LocalHistogram,
    iteration_tokens: LocalHistogram,
    prompt_tokens_total: LocalIntCounter,
    prompt_tokens_cached_total: LocalIntCounter,
    generation_tokens_total: LocalIntCounter,
    ended_stop: IntCounter,
    ended_length: IntCounter,
    ended_abort: IntCounter,
    ended_timeout: IntCounter,
    ended_error: IntCounter,
    corrupted: IntCounter,
}

impl Recorder {
    pub(super) fn new(histograms: &Histograms, counters: &Counters) -> Self {
        Self {
            time_to_first_token: histograms.time_to_first_token.local(),
            inter_token_latency: histograms.inter_token_latency.local(),
            time_per_output_token: histograms.time_per_output_token.local(),
            e2e_latency: histograms.e2e_latency.local(),
            queue_time: histograms.queue_time.local(),
            inference_time: histograms.inference_time.local(),
            prefill_time: histograms.prefill_time.local(),
            decode_time: histograms.decode_time.local(),
            prompt_tokens: histograms.prompt_tokens.local(),
            generation_tokens: histograms.generation_tokens.local(),
            params_max_tokens: histograms.params_max_tokens.local(),
            prefill_computed: histograms.prefill_computed.local(),
            iteration_tokens: histograms.iteration_tokens.local(),
            prompt_tokens_total: counters.prompt_tokens.local(),
            prompt_tokens_cached_total: counters.prompt_tokens_cached.local(),
            generation_tokens_total: counters.generation_tokens.local(),
            ended_stop: counters.ended(FinishReason::Eos),
            ended_length: counters.ended(FinishReason::Length),
            ended_abort: counters.ended(FinishReason::Abort),
            ended_timeout: counters.ended(FinishReason::Timeout),
            ended_error: counters.ended(FinishReason::Error),
            corrupted: counters.corrupted.clone(),
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
            &self.params_max_tokens,
            &self.prefill_computed,
            &self.iteration_tokens,
        ];
        histograms.into_iter().for_each(LocalHistogram::flush);
        self.prompt_tokens_total.flush();
        self.prompt_tokens_cached_total.flush();
        self.generation_tokens_total.flush();
    }
}

/// Where one request stands in time.
#[derive(Debug)]
pub struct Progress {
    prompt_tokens: u32,
    max_tokens: u32,
    cached_tokens: u32,
    generated: u32,
    arrived: Instant,
    started: Option<Instant>,
    first_token: Option<Instant>,
    last_token: Instant,
    stopped_by_text: bool,
}

impl Progress {
    /// A request of `prompt_tokens` tokens that arrived at `arrived`.
    pub fn new(prompt_tokens: u32, max_tokens: u32, arrived: Instant) -> Self {
        Self {
            prompt_tokens,
            max_tokens,
            cached_tokens: 0,
            generated: 0,
            arrived,
            started: None,
            first_token: None,
            last_token: arrived,
            stopped_by_text: false,
        }
    }

    /// The door has found a stop string and will abort: this counts as a stop.
    pub fn stopped_by_text(&mut self) {
        self.stopped_by_text = true;
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
    pub fn started(&mut self, recorder: &Recorder, cached_tokens: u32, now: Instant) {
        self.started = Some(now);
        self.cached_tokens = cached_tokens;
        recorder.queue_time.observe(seconds(now - self.arrived));
        recorder.prompt_tokens_total.inc_by(u64::from(self.prompt_tokens));
        recorder.prompt_tokens_cached_total.inc_by(u64::from(cached_tokens));
    }

    /// One more token; true for the first.
    pub fn token(&mut self, recorder: &Recorder, now: Instant) -> bool {
        let first = self.first_token.is_none();
        if first {
            self.first_token = Some(now);
            recorder.time_to_first_token.observe(seconds(now - self.arrived));
        } else {
            recorder.inter_token_latency.observe(seconds(now - self.last_token));
        }
        self.last_token = now;
        self.generated += 1;
        recorder.generation_tokens_total.inc();
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
        recorder.e2e_latency.observe(seconds(now - self.arrived));
        recorder.prompt_tokens.observe(f64::from(self.prompt_tokens));
        recorder.generation_tokens.observe(f64::from(self.generated));
        recorder.params_max_tokens.observe(f64::from(self.max_tokens));
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
