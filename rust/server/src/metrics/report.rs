//! The line that the server logs every few seconds while it works.

use std::time::Instant;

use octavo_core::Stats;

use super::Metrics;

/// Remembers the counts of the last line.
#[derive(Debug)]
pub struct Reporter {
    since: Instant,
    prompt_tokens: u64,
    generation_tokens: u64,
    prefix_queries: u64,
    prefix_hits: u64,
    was_active: bool,
}

impl Reporter {
    /// Starts counting now.
    pub fn new(metrics: &Metrics) -> Self {
        Self {
            since: Instant::now(),
            prompt_tokens: metrics.counters.prompt_tokens.get(),
            generation_tokens: metrics.counters.generation_tokens.get(),
            prefix_queries: 0,
            prefix_hits: 0,
            was_active: false,
        }
    }

    /// The line for the time since the last call; `None` when nothing happened,
    /// but for one line that shows that the work has ended.
    pub fn line(&mut self, metrics: &Metrics, stats: &Stats) -> Option<String> {
        let now = Instant::now();
        let seconds = (now - self.since).as_secs_f64().max(1e-9);
        let prompt_tokens = metrics.counters.prompt_tokens.get();
        let generation_tokens = metrics.counters.generation_tokens.get();
        let prompt_rate = (prompt_tokens - self.prompt_tokens) as f64 / seconds;
        let generation_rate = (generation_tokens - self.generation_tokens) as f64 / seconds;
        let queries = stats.prefix_query_tokens - self.prefix_queries;
        let hits = stats.prefix_hit_tokens - self.prefix_hits;
        let active = prompt_rate + generation_rate > 0.0 || stats.running + stats.waiting > 0;
        let show = active || self.was_active;
        *self = Self {
            since: now,
            prompt_tokens,
            generation_tokens,
            prefix_queries: stats.prefix_query_tokens,
            prefix_hits: stats.prefix_hit_tokens,
            was_active: active,
        };
        let hit_rate = if queries == 0 { 0.0 } else { 100.0 * hits as f64 / queries as f64 };
        show.then(|| {
            format!(
                "prompt {prompt_rate:.1} tokens/s, generation {generation_rate:.1} tokens/s, running {}, waiting {}, \
                 KV usage {:.1}%, prefix cache hits {hit_rate:.1}%",
                stats.running,
                stats.waiting,
                100.0 * stats.kv_usage
            )
        })
    }
}
