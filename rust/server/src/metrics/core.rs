//! What the core counts, read when somebody asks.

use octavo_core::{EngineLimits, Result, Stats};
use parking_lot::Mutex;
use prometheus::{Counter, Gauge};

use super::config::MetricsConfig;
use super::make::Maker;

/// Microseconds of a copy, in seconds.
const MICROSECOND: f64 = 1e-6;

/// Levels and counts of the core.
#[derive(Debug)]
pub(super) struct CoreMetrics {
    levels: Vec<Level>,
    counts: Vec<Count>,
    awake: Gauge,
    /// The core's counts when they were last read.
    seen: Mutex<Stats>,
}

/// A gauge that shows what `read` finds.
#[derive(Debug)]
struct Level {
    gauge: Gauge,
    read: fn(&Stats) -> f64,
}

/// A counter that grows with what `read` finds, times `unit`.
#[derive(Debug)]
struct Count {
    counter: Counter,
    read: fn(&Stats) -> u64,
    unit: f64,
}

impl CoreMetrics {
    pub fn new(make: Maker<'_>, config: &MetricsConfig, limits: &EngineLimits) -> Result<Self> {
        info(make, config, limits)?;
        let awake = make
            .gauge_by("engine_sleep_state", "1 while the engine has its worker", &["sleep_state"])?
            .with_label_values(&["awake"]);
        let mut metrics = Self { levels: Vec::new(), counts: Vec::new(), awake, seen: Mutex::default() };
        metrics.add_requests(make)?;
        metrics.add_cache(make)?;
        if limits.host_blocks > 0 {
            metrics.add_host(make, config.block_bytes as f64)?;
        }
        if limits.disk_tier {
            metrics.count(
                make,
                ("kv_offload_tiering_promotion_allocation_failures_total", |stats| stats.host_fetches_failed),
                "Blocks on disk that were asked for and found no place in host memory",
            )?;
        }
        Ok(metrics)
    }

    /// Brings all up to date with `stats`.
    pub fn update(&self, stats: &Stats, awake: bool) {
        for Level { gauge, read } in &self.levels {
            gauge.set(read(stats));
        }
        self.awake.set(f64::from(u8::from(awake)));
        let mut seen = self.seen.lock();
        for Count { counter, read, unit } in &self.counts {
            counter.inc_by(read(stats).saturating_sub(read(&seen)) as f64 * unit);
        }
        *seen = *stats;
    }

    fn add_requests(&mut self, make: Maker<'_>) -> Result<()> {
        self.level(
            make,
            ("num_requests_running", |stats| stats.running as f64),
            "Sequences in execution batches",
        )?;
        self.level(
            make,
            ("num_requests_waiting", |stats| stats.waiting as f64),
            "Sequences waiting to be admitted",
        )?;
        let waiting = make.gauge_by(
            "num_requests_waiting_by_reason",
            "Sequences waiting for a slot or memory (capacity), or for a prefix that is computed now or comes from \
             disk (deferred)",
            &["reason"],
        )?;
        let capacity = waiting.with_label_values(&["capacity"]);
        let deferred = waiting.with_label_values(&["deferred"]);
        self.levels
            .push(Level { gauge: capacity, read: |stats| (stats.waiting - stats.waiting_deferred) as f64 });
        self.levels.push(Level { gauge: deferred, read: |stats| stats.waiting_deferred as f64 });
        self.count(make, ("num_preemptions_total", |stats| stats.preemptions), "Sequences preempted")
    }

    fn add_cache(&mut self, make: Maker<'_>) -> Result<()> {
        self.level(
            make,
            ("kv_cache_usage_perc", |stats| stats.kv_usage),
            "Share of KV blocks in use, 0 to 1",
        )?;
        self.level(
            make,
            ("kv_cache_pinned_perc", |stats| stats.blocks_pinned as f64 / stats.blocks_total as f64),
            "Share of KV blocks that requests keep for a time, 0 to 1",
        )?;
        self.count(
            make,
            ("kv_cache_pins_refused_total", |stats| stats.pins_refused),
            "Prefixes not kept because as much is kept as may be",
        )?;
        self.count(
            make,
            ("prefix_cache_queries_total", |stats| stats.prefix_query_tokens),
            "Tokens looked up in the device's prefix cache",
        )?;
        self.count(
            make,
            ("prefix_cache_hits_total", device_hits),
            "Tokens found in the device's prefix cache",
        )
    }

    fn add_host(&mut self, make: Maker<'_>, block_bytes: f64) -> Result<()> {
        self.count(
            make,
            ("external_prefix_cache_queries_total", |stats| stats.prefix_query_tokens - device_hits(stats)),
            "Tokens looked up in host memory and on disk, which the device lacked",
        )?;
        self.count(
            make,
            ("external_prefix_cache_hits_total", |stats| stats.host_hit_tokens),
            "Tokens found in host memory or on disk",
        )?;
        let mut copies = |name, read, unit, help| -> Result<()> {
            self.counts.push(Count { counter: make.sum(name, help)?, read, unit });
            Ok(())
        };
        copies(
            "kv_offload_load_bytes_total",
            |stats| stats.host_loaded_blocks,
            block_bytes,
            "Bytes copied from host memory to the device",
        )?;
        copies(
            "kv_offload_load_time_total",
            |stats| stats.host_load_us,
            MICROSECOND,
            "Seconds of copies from host memory to the device",
        )?;
        copies(
            "kv_offload_store_bytes_total",
            |stats| stats.host_saved_blocks,
            block_bytes,
            "Bytes copied from the device to host memory",
        )?;
        copies(
            "kv_offload_store_time_total",
            |stats| stats.host_save_us,
            MICROSECOND,
            "Seconds of copies from the device to host memory",
        )?;
        self.count(
            make,
            ("kv_offload_allocation_failure_total", |stats| stats.host_saves_failed),
            "Blocks that the device gave up and that found no place in host memory",
        )?;
        self.level(
            make,
            ("kv_offload_cpu_cache_usage_perc", |stats| share(stats.host_blocks_held, stats)),
            "Share of the host's blocks that copies use now, 0 to 1",
        )?;
        self.level(
            make,
            ("kv_offload_cpu_cache_filled_perc", |stats| share(stats.host_blocks_used, stats)),
            "Share of the host's blocks that have content, 0 to 1",
        )
    }

    fn level(&mut self, make: Maker<'_>, what: (&str, fn(&Stats) -> f64), help: &str) -> Result<()> {
        self.levels.push(Level { gauge: make.gauge(what.0, help)?, read: what.1 });
        Ok(())
    }

    fn count(&mut self, make: Maker<'_>, what: (&str, fn(&Stats) -> u64), help: &str) -> Result<()> {
        self.counts.push(Count { counter: make.sum(what.0, help)?, read: what.1, unit: 1.0 });
        Ok(())
    }
}

fn device_hits(stats: &Stats) -> u64 {
    stats.prefix_hit_tokens - stats.host_hit_tokens
}

fn share(blocks: usize, stats: &Stats) -> f64 {
    blocks as f64 / stats.host_blocks_total as f64
}

fn info(make: Maker<'_>, config: &MetricsConfig, limits: &EngineLimits) -> Result<()> {
    let known = [
        ("block_size", limits.block_size.to_string()),
        ("enable_prefix_caching", limits.enable_prefix_caching.to_string()),
        ("max_pinned_share", limits.max_pinned_share.to_string()),
        ("num_cpu_blocks", limits.host_blocks.to_string()),
        ("num_gpu_blocks", limits.num_blocks.to_string()),
        ("watermark", limits.watermark.to_string()),
    ];
    let known = known.iter().map(|(label, value)| (*label, value.as_str()));
    let more = config.cache_config.iter().map(|(label, value)| (label.as_str(), value.as_str()));
    make.info("cache_config_info", "The KV cache's settings, as labels; always 1", known.chain(more))
}
