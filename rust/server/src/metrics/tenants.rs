//! Metrics by tenant, of a bounded number of tenants.
//!
//! Tenants are named by API keys or by users' names from outside, so what is
//! exported is neither: it is the beginning of its SHA-256. Those that have
//! weights come first, then who comes first; all later ones are `other`.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use octavo_core::{CachedTokens, EngineLimits, Result};
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::buckets;
use super::config::MetricsConfig;
use super::make::Maker;

/// Who comes after all known tenants.
const OTHER: &str = "other";
/// Who says neither key nor name.
const NOBODY: &str = "none";

/// The tenants that are known. Only the step loop has one.
#[derive(Clone, Debug)]
pub(crate) struct Tenants {
    most: usize,
    known: HashMap<u64, Arc<Tenant>>,
    other: Arc<Tenant>,
    metrics: ByTenant,
}

#[derive(Clone, Debug)]
struct ByTenant {
    requests: IntGaugeVec,
    prompt_tokens: IntCounterVec,
    cached_tokens: IntCounterVec,
    generation_tokens: IntCounterVec,
    queue_time: HistogramVec,
    time_to_first_token: HistogramVec,
    e2e_latency: HistogramVec,
}

/// The metrics of one tenant.
#[derive(Debug)]
pub(crate) struct Tenant {
    requests: IntGauge,
    prompt_tokens: IntCounter,
    cached_tokens: IntCounter,
    generation_tokens: IntCounter,
    queue_time: Histogram,
    time_to_first_token: Histogram,
    e2e_latency: Histogram,
}

impl Tenants {
    pub(super) fn new(make: Maker<'_>, config: &MetricsConfig, limits: &EngineLimits) -> Result<Self> {
        let metrics = ByTenant::new(make)?;
        let other = Arc::new(metrics.tenant(OTHER));
        let mut tenants = Self { most: config.max_tenants, known: HashMap::new(), other, metrics };
        for (tenant, _) in &limits.tenant_weights {
            tenants.get(*tenant);
        }
        Ok(tenants)
    }

    /// The metrics of the tenant of this number, or those of all others.
    pub fn get(&mut self, number: u64) -> Arc<Tenant> {
        if let Some(tenant) = self.known.get(&number) {
            return Arc::clone(tenant);
        }
        if self.known.len() >= self.most {
            return Arc::clone(&self.other);
        }
        let tenant = Arc::new(self.metrics.tenant(&label(number)));
        self.known.insert(number, Arc::clone(&tenant));
        tenant
    }
}

/// The first 16 digits of the name's SHA-256.
fn label(number: u64) -> String {
    if number == 0 {
        return NOBODY.to_owned();
    }
    number.to_le_bytes().iter().fold(String::with_capacity(16), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl ByTenant {
    fn new(make: Maker<'_>) -> Result<Self> {
        let count = |name, help| make.counter_by(name, help, &["tenant"]);
        let seconds = |name, help, buckets| make.histogram_by(name, help, &["tenant"], buckets);
        Ok(Self {
            requests: make.level_by(
                "tenant_num_requests",
                "Sequences of a tenant that wait or run",
                &["tenant"],
            )?,
            prompt_tokens: count("tenant_prompt_tokens_total", "Prompt tokens of started sequences")?,
            cached_tokens: count("tenant_prompt_tokens_cached_total", "Prompt tokens read from the cache")?,
            generation_tokens: count("tenant_generation_tokens_total", "Tokens sampled")?,
            queue_time: seconds(
                "tenant_request_queue_time_seconds",
                "From arrival to the first step",
                buckets::REQUEST_SECONDS,
            )?,
            time_to_first_token: seconds(
                "tenant_time_to_first_token_seconds",
                "From arrival to the first token",
                buckets::FIRST_TOKEN_SECONDS,
            )?,
            e2e_latency: seconds(
                "tenant_e2e_request_latency_seconds",
                "From arrival to the end",
                buckets::REQUEST_SECONDS,
            )?,
        })
    }

    fn tenant(&self, label: &str) -> Tenant {
        let label = &[label];
        Tenant {
            requests: self.requests.with_label_values(label),
            prompt_tokens: self.prompt_tokens.with_label_values(label),
            cached_tokens: self.cached_tokens.with_label_values(label),
            generation_tokens: self.generation_tokens.with_label_values(label),
            queue_time: self.queue_time.with_label_values(label),
            time_to_first_token: self.time_to_first_token.with_label_values(label),
            e2e_latency: self.e2e_latency.with_label_values(label),
        }
    }
}

impl Tenant {
    pub fn arrived(&self) {
        self.requests.inc();
    }

    pub fn started(&self, prompt_tokens: u32, cached: CachedTokens, queued_s: f64) {
        self.prompt_tokens.inc_by(u64::from(prompt_tokens));
        self.cached_tokens.inc_by(u64::from(cached.total()));
        self.queue_time.observe(queued_s);
    }

    pub fn first_token(&self, after_s: f64) {
        self.time_to_first_token.observe(after_s);
    }

    pub fn token(&self) {
        self.generation_tokens.inc();
    }

    pub fn ended(&self, after_s: f64) {
        self.requests.dec();
        self.e2e_latency.observe(after_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_the_beginning_of_the_names_hash() {
        // printf alice | sha256sum
        assert_eq!(label(crate::http::tenant("alice")), "2bd806c97f0e00af");
        assert_eq!(label(0), "none");
    }
}
