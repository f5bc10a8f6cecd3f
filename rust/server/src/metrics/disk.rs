//! What the disk tier moves.

use std::time::Duration;

use octavo_core::Result;
use prometheus::{Counter, Gauge, IntCounter, IntGauge, Registry};

use super::config::MetricsConfig;
use super::make::Maker;

/// The label that names the tier: the first below the host.
const TIER: (&str, &str) = ("tier", "1:disk");

/// Transfers between host memory and disk.
#[derive(Debug)]
pub(crate) struct DiskMetrics {
    block_bytes: u64,
    reads: Direction,
    writes: Direction,
    usage: Gauge,
}

#[derive(Debug)]
struct Direction {
    active: IntGauge,
    bytes: IntCounter,
    seconds: Counter,
    failures: IntCounter,
}

/// Which way a block goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transferring {
    /// From disk to the host.
    Read,
    /// From the host to disk.
    Write,
}

impl DiskMetrics {
    pub(super) fn new(registry: &Registry, base: &[(&str, &str)], config: &MetricsConfig) -> Result<Self> {
        let base = [base, &[TIER]].concat();
        let make = Maker::engine(registry, &base);
        Ok(Self {
            block_bytes: config.block_bytes,
            reads: Direction {
                active: make
                    .level("kv_offload_tiering_active_promotion_jobs", "Blocks on their way from disk")?,
                bytes: make.counter("kv_offload_tiering_read_bytes_total", "Bytes read from disk")?,
                seconds: make.sum("kv_offload_tiering_read_time_total", "Seconds of reads from disk")?,
                failures: make.counter(
                    "kv_offload_tiering_promotion_job_failures_total",
                    "Blocks that could not be read from disk",
                )?,
            },
            writes: Direction {
                active: make
                    .level("kv_offload_tiering_active_cascade_jobs", "Blocks on their way to disk")?,
                bytes: make.counter("kv_offload_tiering_write_bytes_total", "Bytes written to disk")?,
                seconds: make.sum("kv_offload_tiering_write_time_total", "Seconds of writes to disk")?,
                failures: make.counter(
                    "kv_offload_tiering_cascade_job_failures_total",
                    "Blocks that could not be written to disk",
                )?,
            },
            usage: make.gauge("kv_offload_tiering_usage_perc", "Share of --kv-disk-size in use, 0 to 1")?,
        })
    }

    fn direction(&self, which: Transferring) -> &Direction {
        match which {
            Transferring::Read => &self.reads,
            Transferring::Write => &self.writes,
        }
    }

    /// A block sets out.
    pub fn begun(&self, which: Transferring) {
        self.direction(which).active.inc();
    }

    /// A block has arrived after `time`, or has not.
    pub fn ended(&self, which: Transferring, done: bool, time: Duration) {
        let direction = self.direction(which);
        direction.active.dec();
        if done {
            direction.bytes.inc_by(self.block_bytes);
            direction.seconds.inc_by(time.as_secs_f64());
        } else {
            direction.failures.inc();
        }
    }

    /// So much of the disk tier is in use, 0 to 1.
    pub fn set_usage(&self, usage: f64) {
        self.usage.set(usage);
    }
}
