//! Sums over the requests of one level.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::record::{Failure, Record, TokenSource};
use super::slo::Slo;
use crate::distribution::Distribution;

/// Failures that are kept in words.
const MOST_EXAMPLES: usize = 5;

/// What a level's requests add up to.
#[derive(Debug)]
pub struct Totals {
    start: Instant,
    cpu_start: Option<Duration>,
    /// From the start to the end of the last request.
    pub duration: Duration,
    /// CPU time of this process's main thread, where the system tells.
    pub client_cpu: Option<Duration>,
    /// Requests that completed.
    pub completed: u64,
    /// Requests that did not.
    pub failed: u64,
    /// Completed requests that met every objective.
    pub good: u64,
    /// Failures by kind.
    pub errors: BTreeMap<String, u64>,
    /// The first few failures.
    pub error_examples: Vec<String>,
    /// Prompt tokens by the server's count.
    pub prompt_tokens: u64,
    /// Those of them that the server found in its cache.
    pub cached_tokens: u64,
    /// Generated tokens.
    pub output_tokens: u64,
    /// Requests whose tokens were counted without the server's usage.
    pub counted_by_ids: u64,
    /// Requests whose stream events were taken for tokens.
    pub counted_by_events: u64,
    /// Time to first token.
    pub ttft: Distribution,
    /// Time per output token after the first.
    pub tpot: Distribution,
    /// Gaps between events.
    pub itl: Distribution,
    /// End-to-end latency.
    pub e2el: Distribution,
    /// From the scheduled arrival to the sending.
    pub lag: Distribution,
    /// Begin (+1) and end (-1) of each completed request on the connection.
    spans: Vec<(Instant, i32)>,
}

impl Totals {
    /// Starts the clock.
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
            cpu_start: thread_cpu(),
            duration: Duration::ZERO,
            client_cpu: None,
            completed: 0,
            failed: 0,
            good: 0,
            errors: BTreeMap::new(),
            error_examples: Vec::new(),
            prompt_tokens: 0,
            cached_tokens: 0,
            output_tokens: 0,
            counted_by_ids: 0,
            counted_by_events: 0,
            ttft: Distribution::default(),
            tpot: Distribution::default(),
            itl: Distribution::default(),
            e2el: Distribution::default(),
            lag: Distribution::default(),
            spans: Vec::new(),
        }
    }

    /// Adds a completed request.
    pub fn add(&mut self, record: &Record, slos: &[Slo]) {
        self.completed += 1;
        self.good += u64::from(slos.iter().all(|slo| slo.met_by(record)));
        self.prompt_tokens += record.prompt_tokens;
        self.cached_tokens += record.cached_tokens;
        self.output_tokens += record.output_tokens;
        match record.token_source {
            TokenSource::Usage => {}
            TokenSource::Ids => self.counted_by_ids += 1,
            TokenSource::Events => self.counted_by_events += 1,
        }
        self.ttft.record(record.ttft());
        self.e2el.record(record.e2e());
        self.lag.record(record.lag());
        if let Some(tpot) = record.tpot() {
            self.tpot.record(tpot);
        }
        for gap in record.inter_token() {
            self.itl.record(gap);
        }
        self.spans.extend([(record.sent, 1), (record.done, -1)]);
    }

    /// Adds a failed request.
    pub fn fail(&mut self, failure: Failure) {
        self.failed += 1;
        if self.error_examples.len() < MOST_EXAMPLES {
            let detail: String = failure.detail.trim().chars().take(300).collect();
            self.error_examples.push(format!("{}: {detail}", failure.kind));
        }
        *self.errors.entry(failure.kind).or_default() += 1;
    }

    /// Stops the clock.
    pub fn end(&mut self) {
        self.duration = self.start.elapsed();
        self.client_cpu = thread_cpu().zip(self.cpu_start).map(|(end, start)| end.saturating_sub(start));
    }

    /// Most completed requests that were on connections at one moment.
    pub fn peak_concurrency(&self) -> u64 {
        let mut spans = self.spans.clone();
        spans.sort_unstable();
        let counts = spans.iter().scan(0, |count, span| {
            *count += span.1;
            Some(*count)
        });
        counts.max().and_then(|count| u64::try_from(count).ok()).unwrap_or(0)
    }

    /// Share of requests that were good; 1 without requests.
    pub fn good_share(&self) -> f64 {
        let requests = self.completed + self.failed;
        if requests == 0 { 1.0 } else { self.good as f64 / requests as f64 }
    }
}

/// CPU time of the calling thread, from Linux's scheduler.
fn thread_cpu() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(start: Instant, events_ms: &[u64], tokens: u64) -> Record {
        let at = |ms: u64| start + Duration::from_millis(ms);
        Record {
            scheduled: start,
            sent: at(5),
            events: events_ms.iter().map(|&ms| at(ms)).collect(),
            done: at(events_ms[events_ms.len() - 1] + 1),
            prompt_tokens: 10,
            cached_tokens: 4,
            output_tokens: tokens,
            token_source: TokenSource::Usage,
        }
    }

    #[test]
    fn times_run_from_the_scheduled_arrival() {
        let mut totals = Totals::start();
        let slos = ["ttft:20".parse().unwrap(), "tpot:10".parse().unwrap()];
        totals.add(&record(Instant::now(), &[20, 30, 50], 5), &slos);
        totals.add(&record(Instant::now(), &[21], 1), &slos);
        let ms = |distribution: &Distribution| {
            let summary = distribution.summary_ms().unwrap();
            (distribution.count(), summary.max)
        };
        assert_eq!(ms(&totals.ttft), (2, 21.0));
        assert_eq!(ms(&totals.lag), (2, 5.0));
        assert_eq!(ms(&totals.itl), (2, 20.0));
        // 30 ms after the first event over four further tokens.
        assert_eq!(ms(&totals.tpot), (1, 7.5));
        assert_eq!(ms(&totals.e2el), (2, 51.0));
        assert_eq!((totals.good, totals.good_share()), (1, 0.5));
        assert_eq!((totals.prompt_tokens, totals.cached_tokens, totals.output_tokens), (20, 8, 6));
    }

    #[test]
    fn the_peak_is_the_most_at_one_moment() {
        let mut totals = Totals::start();
        let start = Instant::now();
        for offset_ms in [0, 10, 40] {
            totals.add(&record(start + Duration::from_millis(offset_ms), &[20], 1), &[]);
        }
        assert_eq!(totals.peak_concurrency(), 2);
    }

    #[test]
    fn failures_are_counted_by_kind() {
        let mut totals = Totals::start();
        for _ in 0..9 {
            totals.fail(Failure::new("http_503", "busy"));
        }
        assert_eq!(totals.errors["http_503"], 9);
        assert_eq!(totals.error_examples.len(), 5);
        assert!(totals.good_share() < 1e-9);
    }
}
