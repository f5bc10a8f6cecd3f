//! What the system says of the server's process and its worker. Linux only:
//! elsewhere there are no such metrics.

use std::fs;

use octavo_core::Result;
use parking_lot::Mutex;
use prometheus::{Counter, Gauge, GaugeVec};

use super::make::Maker;

/// Ticks a second in `/proc`: the same on every Linux, whatever the kernel's own.
const TICKS_PER_S: f64 = 100.0;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct ProcessMetrics {
    own: Option<Own>,
    /// Without a value while there is no worker process.
    worker_memory: GaugeVec,
    worker: Mutex<Option<u32>>,
}

#[derive(Debug)]
struct Own {
    cpu_seconds: Counter,
    resident: Gauge,
    virtual_memory: Gauge,
    open_fds: Gauge,
    max_fds: Gauge,
}

impl ProcessMetrics {
    /// `plain` makes metrics of any process, `engine` those of Octavo.
    pub fn new(plain: Maker<'_>, engine: Maker<'_>) -> Result<Self> {
        let started = started_s();
        let own = started.map(|started| {
            plain.gauge("process_start_time_seconds", "Start, seconds since 1970")?.set(started);
            Ok(Own {
                cpu_seconds: plain
                    .sum("process_cpu_seconds_total", "Processor time, user and system, seconds")?,
                resident: plain.gauge("process_resident_memory_bytes", "Resident memory")?,
                virtual_memory: plain.gauge("process_virtual_memory_bytes", "Virtual memory")?,
                open_fds: plain.gauge("process_open_fds", "Open file descriptors")?,
                max_fds: plain.gauge("process_max_fds", "Most open file descriptors")?,
            })
        });
        Ok(Self {
            own: own.transpose()?,
            worker_memory: engine.gauge_by(
                "worker_resident_memory_bytes",
                "Resident memory of the worker process",
                &[],
            )?,
            worker: Mutex::default(),
        })
    }

    pub fn worker_is(&self, pid: Option<u32>) {
        *self.worker.lock() = pid;
    }

    pub fn update(&self) {
        if let Some(own) = &self.own {
            own.update();
        }
        let worker = *self.worker.lock();
        match worker.and_then(|pid| memory(&pid.to_string())) {
            Some(Memory { resident, .. }) => self.worker_memory.with_label_values::<&str>(&[]).set(resident),
            None => self.worker_memory.reset(),
        }
    }
}

impl Own {
    /// What cannot be read stays as it is.
    fn update(&self) {
        if let Some(seconds) = cpu_seconds() {
            self.cpu_seconds.inc_by((seconds - self.cpu_seconds.get()).max(0.0));
        }
        if let Some(memory) = memory("self") {
            self.resident.set(memory.resident);
            self.virtual_memory.set(memory.total);
        }
        if let Ok(entries) = fs::read_dir("/proc/self/fd") {
            // Without the one that reads.
            self.open_fds.set(entries.count().saturating_sub(1) as f64);
        }
        if let Some(most) = max_fds() {
            self.max_fds.set(most);
        }
    }
}

/// Bytes.
struct Memory {
    resident: f64,
    total: f64,
}

fn memory(process: &str) -> Option<Memory> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_end_matches("kB").trim().parse::<f64>().ok().map(|kilobytes| 1024.0 * kilobytes)
    };
    Some(Memory { resident: bytes("VmRSS:")?, total: bytes("VmSize:")? })
}

/// Fields of `/proc/self/stat` from the third on: the second is a name in parentheses.
fn stat() -> Option<Vec<f64>> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    Some(fields.split_whitespace().map(|field| field.parse().unwrap_or_default()).collect())
}

fn cpu_seconds() -> Option<f64> {
    let stat = stat()?;
    Some((stat.get(11)? + stat.get(12)?) / TICKS_PER_S)
}

/// The process's start, Unix time.
fn started_s() -> Option<f64> {
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot + stat()?.get(19)? / TICKS_PER_S)
}

fn max_fds() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let soft = soft.split_whitespace().next()?;
    if soft == "unlimited" { Some(f64::INFINITY) } else { soft.parse().ok() }
}
