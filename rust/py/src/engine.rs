//! The engine as the step loop sees it.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use octavo_server::engine::{DiskTierConfig, QueueLimits};
use octavo_server::metrics::{Metrics, MetricsConfig, Sample, Value};
use octavo_server::{EngineHandle as Handle, Planned as Plan};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyTuple};

use crate::buffer::Bytes;
use crate::enter::{Failure, enter, run};
use crate::frame::Limits;
use crate::kv_events::KvPublisher;

/// What the step loop does next.
#[pyclass(eq, eq_int, frozen, module = "octavo._core")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planned {
    /// The frame holds a step to compute.
    Step,
    /// No step for now: commit one that is in flight, or ask again.
    Idle,
    /// The engine has stopped or failed: leave the loop.
    Stopped,
}

/// The engine core between the step loop and the doors.
#[pyclass(frozen, module = "octavo._core")]
#[derive(Debug)]
pub struct EngineHandle(pub Handle);

#[pymethods]
impl EngineHandle {
    /// An engine with nothing in it. `metrics` is octavo_server's MetricsConfig as JSON; `max_queued_tokens`
    /// bounds prompt tokens that wait to be computed. `publisher` tells what its prefix cache holds.
    #[new]
    #[pyo3(signature = (limits, metrics, max_queued_tokens=None, publisher=None))]
    fn new(
        py: Python<'_>,
        limits: Limits,
        metrics: &str,
        max_queued_tokens: Option<u64>,
        publisher: Option<&KvPublisher>,
    ) -> PyResult<Self> {
        let mut limits = limits.resolve()?;
        limits.kv_events = publisher.is_some();
        let queue =
            QueueLimits { max_requests: limits.max_num_queued_reqs, max_prompt_tokens: max_queued_tokens };
        enter(py, || {
            let config: MetricsConfig = serde_json::from_str(metrics)
                .map_err(|error| Failure::Internal(format!("the options of metrics: {error}")))?;
            let metrics = Arc::new(Metrics::new(&config, &limits)?);
            let handle = Handle::new(limits, queue, metrics)?;
            Ok::<_, Failure>(match publisher {
                Some(publisher) => handle.with_publisher(publisher.take()?),
                None => handle,
            })
        })
        .map(Self)
    }

    /// Put a disk tier below the host tier whose memory has the descriptor `host`; returns how many blocks of
    /// earlier runs it has. `ValueError` where the folder cannot be used.
    #[expect(clippy::too_many_arguments, reason = "each is a number of the tier")]
    fn attach_disk(
        &self,
        py: Python<'_>,
        host: i32,
        host_blocks: u32,
        block_bytes: usize,
        path: PathBuf,
        capacity_bytes: u64,
        fingerprint: [u8; 32],
    ) -> PyResult<usize> {
        // SAFETY: the caller's descriptor is open during the call; it is duplicated at once.
        let host = unsafe { BorrowedFd::borrow_raw(host) }.try_clone_to_owned()?;
        let config = DiskTierConfig { host, host_blocks, block_bytes, path, capacity_bytes, fingerprint };
        enter(py, || self.0.attach_disk(config))
    }

    /// Plan the next step into `frame`, waiting up to `timeout_s` seconds if there is nothing to do.
    fn plan(&self, py: Python<'_>, mut frame: Bytes, timeout_s: f64) -> PyResult<Planned> {
        let timeout = duration(timeout_s)?;
        let frame = frame.write()?;
        let planned = enter(py, || self.0.plan(frame, timeout))?;
        Ok(match planned {
            Plan::Step(_) => Planned::Step,
            Plan::Idle => Planned::Idle,
            Plan::Stopped => Planned::Stopped,
        })
    }

    /// Take in the result of the oldest step in flight.
    fn commit(&self, py: Python<'_>, result: Bytes) -> PyResult<()> {
        let result = result.read();
        enter(py, || self.0.commit(result))
    }

    /// The worker is this process from now on, for metrics.
    fn worker_is(&self, pid: u32) {
        self.0.worker_is(pid);
    }

    /// The worker has died and is being started again, until `recover`.
    fn lost_worker(&self) {
        self.0.lost_worker();
    }

    /// The worker has started again with empty KV memory; requests are computed again from their tokens.
    fn recover(&self, py: Python<'_>) -> PyResult<()> {
        run(py, || self.0.recover())
    }

    /// End all requests as aborted and refuse more; the loop leaves.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        run(py, || self.0.stop())
    }

    /// End all requests with `message`: the engine cannot go on.
    fn fail(&self, py: Python<'_>, message: &str) -> PyResult<()> {
        run(py, || self.0.fail(message))
    }

    /// Why the engine has failed, if it has.
    fn failure(&self) -> Option<String> {
        self.0.failure().map(|error| error.message().to_owned())
    }

    /// Forget cached prefixes that no request uses; False when some are in use and stay.
    fn reset_prefix_cache(&self, py: Python<'_>) -> PyResult<bool> {
        run(py, || self.0.reset_prefix_cache())
    }

    /// What `/metrics` exports: names, labels and values (a number, with whether it only grows, or of a histogram
    /// its count, sum and buckets).
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let samples = run(py, || self.0.read_metrics().samples())?;
        samples.into_iter().map(|sample| describe(py, sample)).collect()
    }

    /// Counters and levels of the core.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = run(py, || self.0.stats())?;
        let described = PyDict::new(py);
        described.set_item("running", stats.running)?;
        described.set_item("waiting", stats.waiting)?;
        described.set_item("blocks_total", stats.blocks_total)?;
        described.set_item("blocks_used", stats.blocks_used)?;
        described.set_item("blocks_cached", stats.blocks_cached)?;
        described.set_item("host_blocks_used", stats.host_blocks_used)?;
        described.set_item("disk_blocks", stats.disk_blocks)?;
        described.set_item("host_hit_tokens", stats.host_hit_tokens)?;
        described.set_item("host_saved_blocks", stats.host_saved_blocks)?;
        described.set_item("kv_usage", stats.kv_usage)?;
        described.set_item("prefix_query_tokens", stats.prefix_query_tokens)?;
        described.set_item("prefix_hit_tokens", stats.prefix_hit_tokens)?;
        described.set_item("preemptions", stats.preemptions)?;
        described.set_item("prompt_tokens_computed", stats.prompt_tokens_computed)?;
        described.set_item("prompt_tokens_cached", stats.prompt_tokens_cached)?;
        described.set_item("generated_tokens", stats.generated_tokens)?;
        described.set_item("steps", stats.steps)?;
        Ok(described)
    }
}

fn describe(py: Python<'_>, sample: Sample) -> PyResult<Bound<'_, PyTuple>> {
    let Sample { name, labels, value } = sample;
    let labels = labels.into_py_dict(py)?;
    match value {
        Value::Counter(value) => (name, labels, "counter", value).into_pyobject(py),
        Value::Gauge(value) => (name, labels, "gauge", value).into_pyobject(py),
        Value::Histogram { count, sum, buckets } => {
            (name, labels, "histogram", (count, sum, buckets)).into_pyobject(py)
        }
    }
}

/// Seconds from Python; `ValueError` where they are no duration.
pub fn duration(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        Failure::Invalid(format!("a timeout must be a finite number of seconds, not {seconds}")).into()
    })
}
