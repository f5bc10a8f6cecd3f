//! A simulation's figures for people and for programs.

use serde_json::{Map, Value};

use super::world::Outcome;
use crate::output::{number, put_summary, row, summary_head, summary_row};

impl Outcome {
    fn per_s(&self, count: u64) -> f64 {
        count as f64 / self.duration.as_secs_f64().max(1e-9)
    }

    fn hit_rate(&self) -> f64 {
        self.stats.prefix_hit_tokens as f64 / self.stats.prefix_query_tokens.max(1) as f64
    }

    fn host_hit_rate(&self) -> f64 {
        self.stats.host_hit_tokens as f64 / self.stats.prefix_query_tokens.max(1) as f64
    }

    fn core_ns(&self) -> (f64, f64) {
        let mean = self.core.summary_ns().map_or(0.0, |summary| summary.mean);
        (mean, mean * self.core.count() as f64 / self.rows.max(1) as f64)
    }

    /// The figures. Those named `core_*` are real time and differ from run to run.
    pub fn json(&self) -> Map<String, Value> {
        let totals = &self.totals;
        let (core_ns_per_step, core_ns_per_seq) = self.core_ns();
        let mut json = Map::new();
        let mut put = |key: &str, value: Value| json.insert(key.into(), value);
        put("duration", number(self.duration.as_secs_f64()));
        put("completed", totals.completed().into());
        put("aborted", totals.aborted.into());
        put("refused", totals.refused.into());
        put("total_input_tokens", totals.input_tokens.into());
        put("total_output_tokens", totals.output_tokens.into());
        put("request_throughput", number(self.per_s(totals.completed())));
        put("output_throughput", number(self.per_s(totals.output_tokens)));
        put("total_token_throughput", number(self.per_s(totals.input_tokens + totals.output_tokens)));
        put("cache_hit_rate", number(self.hit_rate()));
        put("host_hit_rate", number(self.host_hit_rate()));
        put("host_saved_blocks", self.stats.host_saved_blocks.into());
        put("preemptions", self.stats.preemptions.into());
        put("deaths", self.deaths.into());
        put("wait_bound_used", number(totals.bound_used));
        put("steps", self.stats.steps.into());
        put("mean_rows", number(self.rows as f64 / self.core.count().max(1) as f64));
        put("mean_tokens", number(self.tokens as f64 / self.core.count().max(1) as f64));
        put("digest", format!("{:016x}", totals.digest()).into());
        put("core_ns_per_step", number(core_ns_per_step));
        put("core_ns_per_seq", number(core_ns_per_seq));
        for (name, distribution) in [("ttft", &totals.ttft), ("itl", &totals.itl), ("e2el", &totals.e2el)] {
            put_summary(&mut json, &format!("{name}_ms"), distribution.summary_ms());
        }
        put_summary(&mut json, "core_ns", self.core.summary_ns());
        json
    }

    /// The figures as a table.
    pub fn table(&self) -> String {
        let totals = &self.totals;
        let (core_ns_per_step, core_ns_per_seq) = self.core_ns();
        let ended =
            format!("{} ({} aborted, {} refused)", totals.completed(), totals.aborted, totals.refused);
        let mut table = row("requests completed", ended);
        table += &row("virtual duration, s", format_args!("{:.3}", self.duration.as_secs_f64()));
        table += &row("requests/s", format_args!("{:.2}", self.per_s(totals.completed())));
        table += &row("output tokens/s", format_args!("{:.2}", self.per_s(totals.output_tokens)));
        let tokens = totals.input_tokens + totals.output_tokens;
        table += &row("input and output tokens/s", format_args!("{:.2}", self.per_s(tokens)));
        table += &row("cache hit rate, %", format_args!("{:.2}", 100.0 * self.hit_rate()));
        if self.stats.host_saved_blocks > 0 {
            let rate = format_args!("{:.2}", 100.0 * self.host_hit_rate()).to_string();
            table += &row("of it from the host, %", rate);
            table += &row("blocks saved to the host", self.stats.host_saved_blocks);
        }
        table += &row("preemptions", self.stats.preemptions);
        if self.deaths > 0 {
            table += &row("deaths of the device", self.deaths);
        }
        let used = 100.0 * totals.bound_used;
        table += &row("longest wait, % of its bound", format_args!("{used:.1}"));
        let steps = self.core.count().max(1) as f64;
        let (rows, tokens) = (self.rows as f64 / steps, self.tokens as f64 / steps);
        let of = format_args!("{} ({rows:.1} rows, {tokens:.1} tokens each)", self.stats.steps).to_string();
        table += &row("steps", of);
        table += &row("core ns/step", format_args!("{core_ns_per_step:.0}"));
        table += &row("core ns/step and sequence", format_args!("{core_ns_per_seq:.1}"));
        table += &row("digest of all outputs", format_args!("{:016x}", totals.digest()));
        table += &summary_head("\nvirtual milliseconds");
        for (name, distribution) in [("ttft", &totals.ttft), ("itl", &totals.itl), ("e2el", &totals.e2el)] {
            table += &summary_row(name, distribution.summary_ms());
        }
        table += &summary_head("\nreal nanoseconds");
        table + &summary_row("core, a step", self.core.summary_ns())
    }
}
