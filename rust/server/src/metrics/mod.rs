//! Counters and histograms in Prometheus' text format 0.0.4; `docs/metrics.md`
//! lists them.
//!
//! Names are those that dashboards for this kind of server already read, so the
//! prefix is `vllm:`. What the step loop measures goes into histograms of its
//! own ([`Recorder`]) that are merged once a step; what the core counts is read
//! when somebody asks. A metric that nothing can change here is not exported.

mod buckets;
mod config;
mod core;
mod disk;
mod http;
mod make;
mod process;
mod recorder;
mod report;
mod requests;
mod sample;
mod tenants;

use octavo_core::{EngineLimits, Result, Stats};
use prometheus::{IntCounter, IntCounterVec, Registry, TextEncoder};

pub use self::config::MetricsConfig;
pub use self::recorder::{Progress, Recorder, Siblings};
pub use self::report::Reporter;
pub use self::sample::{Sample, Value};

pub(crate) use self::disk::{DiskMetrics, Transferring};
pub(crate) use self::http::{Answered, HttpMetrics};
pub(crate) use self::tenants::Tenants;

use self::core::CoreMetrics;
use self::make::{Maker, base_labels, internal};
use self::process::ProcessMetrics;
use self::requests::RequestMetrics;

/// All metrics of one served model.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    core: CoreMetrics,
    requests: RequestMetrics,
    rejections: IntCounterVec,
    kv_events_lost: Option<IntCounter>,
    disk: Option<DiskMetrics>,
    tenants: Option<Tenants>,
    http: HttpMetrics,
    process: ProcessMetrics,
}

impl Metrics {
    /// Metrics of an engine with these limits.
    ///
    /// # Errors
    /// Internal: a name is not a metric's or a label's.
    pub fn new(config: &MetricsConfig, limits: &EngineLimits) -> Result<Self> {
        let registry = Registry::new();
        let base = base_labels(&config.model);
        let make = Maker::engine(&registry, &base);
        let rejections = Maker::engine(&registry, &base[..1]).counter_by(
            "admission_rejections_total",
            "Calls refused because of a limit of the queue or of time",
            &["reason"],
        )?;
        for reason in Rejection::ALL {
            rejections.with_label_values(&[reason.label()]);
        }
        Ok(Self {
            core: CoreMetrics::new(make, config, limits)?,
            requests: RequestMetrics::new(make, limits)?,
            rejections,
            kv_events_lost: limits.kv_events.then(|| kv_events_lost(make)).transpose()?,
            disk: limits.disk_tier.then(|| DiskMetrics::new(&registry, &base, config)).transpose()?,
            tenants: (config.max_tenants > 0).then(|| Tenants::new(make, config, limits)).transpose()?,
            http: HttpMetrics::new(Maker::plain(&registry))?,
            process: ProcessMetrics::new(Maker::plain(&registry), make)?,
            registry,
        })
    }

    /// A recorder for the step loop.
    pub(crate) fn recorder(&self) -> Recorder {
        Recorder::new(&self.requests)
    }

    /// Metrics by tenant, for the step loop, if they are asked for.
    pub(crate) fn tenants(&self) -> Option<Tenants> {
        self.tenants.clone()
    }

    /// Those of the disk tier, if there is one.
    pub(crate) fn disk(&self) -> Option<&DiskMetrics> {
        self.disk.as_ref()
    }

    /// Notes the worker's process; `None`: it has died.
    pub(crate) fn worker_is(&self, pid: Option<u32>) {
        self.process.worker_is(pid);
    }

    /// Those of the HTTP server.
    pub(crate) fn http(&self) -> HttpMetrics {
        self.http.clone()
    }

    /// Notes a call that was refused.
    pub(crate) fn rejected(&self, reason: Rejection) {
        self.rejections.with_label_values(&[reason.label()]).inc();
    }

    /// Notes a batch of KV events that is not published.
    pub(crate) fn kv_events_lost(&self) {
        if let Some(lost) = &self.kv_events_lost {
            lost.inc();
        }
    }

    /// Notes a call's `n`.
    pub(crate) fn called(&self, n: u32) {
        self.requests.params_n.observe(f64::from(n));
    }

    /// Brings up to date what is read when somebody asks: the core's counts, and
    /// what the system says of the processes.
    pub fn update(&self, stats: &Stats, awake: bool) {
        self.core.update(stats, awake);
        self.process.update();
    }

    /// All metrics as text.
    ///
    /// # Errors
    /// Internal: the encoder failed.
    pub fn encode(&self) -> Result<String> {
        TextEncoder::new().encode_to_string(&self.registry.gather()).map_err(|error| internal(&error))
    }

    /// All metrics as values.
    pub fn samples(&self) -> Vec<Sample> {
        sample::samples(&self.registry.gather())
    }
}

/// Which limit refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// Of sequences in flight.
    Requests,
    /// Of prompt tokens that wait.
    Tokens,
    /// It could not be in time.
    Deadline,
}

impl Rejection {
    const ALL: [Self; 3] = [Self::Requests, Self::Tokens, Self::Deadline];

    fn label(self) -> &'static str {
        match self {
            Self::Requests => "max_num_queued_reqs",
            Self::Tokens => "max_num_queued_tokens",
            Self::Deadline => "deadline",
        }
    }
}

fn kv_events_lost(make: Maker<'_>) -> Result<IntCounter> {
    make.counter(
        "kv_event_batches_lost_total",
        "Batches of KV events not published because the queue was full",
    )
}
