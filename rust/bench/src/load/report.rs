//! A level's figures for people and for programs.

use serde_json::{Map, Value, json};

use super::totals::Totals;
use crate::arrivals::Arrivals;
use crate::output::{number, put_summary, row, summary_head, summary_row};

impl Totals {
    fn per_s(&self, count: u64) -> f64 {
        count as f64 / self.duration.as_secs_f64().max(1e-9)
    }

    /// The figures, with keys as in `vllm bench serve` where both have them.
    pub fn json(&self, arrivals: &Arrivals, with_goodput: bool) -> Map<String, Value> {
        let mut json = arrivals.json();
        let mut put = |key: &str, value: Value| json.insert(key.into(), value);
        put("duration", number(self.duration.as_secs_f64()));
        put("completed", self.completed.into());
        put("failed", self.failed.into());
        put("errors", json!(self.errors));
        put("error_examples", json!(self.error_examples));
        put("total_input_tokens", self.prompt_tokens.into());
        put("total_cached_tokens", self.cached_tokens.into());
        put("total_output_tokens", self.output_tokens.into());
        put("counted_by_ids", self.counted_by_ids.into());
        put("counted_by_events", self.counted_by_events.into());
        put("request_throughput", number(self.per_s(self.completed)));
        put("output_throughput", number(self.per_s(self.output_tokens)));
        put("total_token_throughput", number(self.per_s(self.prompt_tokens + self.output_tokens)));
        if with_goodput {
            put("request_goodput", number(self.per_s(self.good)));
            put("good_share", number(self.good_share()));
        }
        put("peak_concurrency", self.peak_concurrency().into());
        put("client_cpu_s", self.client_cpu.map_or(Value::Null, |cpu| number(cpu.as_secs_f64())));
        for (name, distribution) in self.distributions() {
            put_summary(&mut json, &format!("{name}_ms"), distribution.summary_ms());
        }
        json
    }

    fn distributions(&self) -> [(&'static str, &crate::distribution::Distribution); 5] {
        [
            ("ttft", &self.ttft),
            ("tpot", &self.tpot),
            ("itl", &self.itl),
            ("e2el", &self.e2el),
            ("lag", &self.lag),
        ]
    }

    /// The figures as a table.
    pub fn table(&self, with_goodput: bool) -> String {
        let mut table = row("requests completed", self.completed);
        table += &row("requests failed", self.failed);
        for (kind, count) in &self.errors {
            table += &row(&format!("  {kind}"), count);
        }
        for example in &self.error_examples {
            table += &row("  such as", example);
        }
        table += &row("duration, s", format_args!("{:.2}", self.duration.as_secs_f64()));
        table += &row("input tokens", format_args!("{} ({} cached)", self.prompt_tokens, self.cached_tokens));
        table += &row("output tokens", format_args!("{}{}", self.output_tokens, self.count_note()));
        table += &row("requests/s", format_args!("{:.2}", self.per_s(self.completed)));
        if with_goodput {
            let (rate, share) = (self.per_s(self.good), 100.0 * self.good_share());
            table += &row("good requests/s", format_args!("{rate:.2} ({share:.1} % of all)"));
        }
        table += &row("output tokens/s", format_args!("{:.2}", self.per_s(self.output_tokens)));
        let total = self.prompt_tokens + self.output_tokens;
        table += &row("input and output tokens/s", format_args!("{:.2}", self.per_s(total)));
        table += &row("peak concurrency", self.peak_concurrency());
        table += &summary_head("\nmilliseconds");
        for (name, distribution) in self.distributions() {
            table += &summary_row(name, distribution.summary_ms());
        }
        table + &self.client_note()
    }

    fn count_note(&self) -> String {
        match (self.counted_by_ids, self.counted_by_events) {
            (0, 0) => String::new(),
            (ids, 0) => format!(" (by token ids in {ids} streams without usage)"),
            (_, events) => format!(" (by stream events in {events} streams without usage: may be too few)"),
        }
    }

    /// Says so when this program may have been the bottleneck.
    fn client_note(&self) -> String {
        let share =
            self.client_cpu.map_or(0.0, |cpu| cpu.as_secs_f64() / self.duration.as_secs_f64().max(1e-9));
        if share < 0.7 {
            return String::new();
        }
        format!(
            "\nThe load generator itself was busy {:.0} % of the time: latencies are too high.\n",
            share * 100.0
        )
    }
}

impl Arrivals {
    fn json(&self) -> Map<String, Value> {
        let rate = |rate: f64| if rate.is_finite() { number(rate) } else { "inf".into() };
        let value = match *self {
            Self::Closed { concurrency } => json!({"max_concurrency": concurrency, "request_rate": "inf"}),
            Self::Open { rate: per_s, burstiness, max_concurrency } => json!({
                "max_concurrency": max_concurrency,
                "request_rate": rate(per_s),
                "burstiness": rate(burstiness),
            }),
        };
        match value {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }
}
