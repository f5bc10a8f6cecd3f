//! The line that the server logs every few seconds while it works.

use std::fmt::Write;
use std::time::Instant;

use octavo_core::Stats;

use super::Metrics;

/// Remembers the counts of the last line.
#[derive(Debug)]
pub struct Reporter {
    since: Instant,
    last: Counts,
    was_active: bool,
}

/// Tokens since the start.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    prompt: u64,
    generation: u64,
    looked_up: u64,
    found: u64,
    found_below: u64,
}

impl Counts {
    fn new(metrics: &Metrics, stats: &Stats) -> Self {
        Self {
            prompt: metrics.requests.prompt_tokens_total.get(),
            generation: metrics.requests.generation_tokens_total.get(),
            looked_up: stats.prefix_query_tokens,
            found: stats.prefix_hit_tokens,
            found_below: stats.host_hit_tokens,
        }
    }
}

impl Reporter {
    /// Starts counting now.
    pub fn new(metrics: &Metrics, stats: &Stats) -> Self {
        Self { since: Instant::now(), last: Counts::new(metrics, stats), was_active: false }
    }

    /// The line for the time since the last call; `None` when nothing happened,
    /// but for one line that shows that the work has ended.
    pub fn line(&mut self, metrics: &Metrics, stats: &Stats) -> Option<String> {
        let (now, counts) = (Instant::now(), Counts::new(metrics, stats));
        let last = std::mem::replace(&mut self.last, counts);
        let seconds = (now - self.since).as_secs_f64().max(1e-9);
        self.since = now;
        let rate = |now: u64, last: u64| (now - last) as f64 / seconds;
        let prompt = rate(counts.prompt, last.prompt);
        let generation = rate(counts.generation, last.generation);
        let active = prompt + generation > 0.0 || stats.running + stats.waiting > 0;
        if !(std::mem::replace(&mut self.was_active, active) || active) {
            return None;
        }
        let looked_up = counts.looked_up - last.looked_up;
        let share = |tokens: u64| 100.0 * tokens as f64 / looked_up.max(1) as f64;
        let mut line = format!(
            "prompt {prompt:.1} tokens/s, generation {generation:.1} tokens/s, running {}, waiting {}, \
             KV usage {:.1}%, prefix cache hits {:.1}%",
            stats.running,
            stats.waiting,
            100.0 * stats.kv_usage,
            share(counts.found - last.found)
        );
        if stats.host_blocks_total > 0 {
            let below = share(counts.found_below - last.found_below);
            // Writing to a string cannot fail.
            let _ = write!(line, " ({below:.1}% from host and disk)");
        }
        Some(line)
    }
}
