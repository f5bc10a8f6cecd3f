//! Engine limits from Python, and the frame layout that follows from them.

use octavo_core::Keep;
use octavo_core::frame::{Column, DType, FrameLayout};
use octavo_core::limits::{EngineLimits, GroupLimits, Policy};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::enter::Failure;
use octavo_server::http::tenant;

/// `octavo_core::EngineLimits` as a mapping with the same names.
#[derive(FromPyObject, Debug)]
#[pyo3(from_item_all)]
pub struct Limits {
    block_size: u32,
    num_blocks: u32,
    /// Kind, size of what is kept, blocks.
    groups: Vec<(String, u32, u32)>,
    max_model_len: u32,
    max_num_seqs: u32,
    max_num_batched_tokens: u32,
    long_prefill_token_threshold: u32,
    max_num_queued_reqs: u32,
    max_logprobs: u32,
    vocab_size: u32,
    watermark: f32,
    enable_prefix_caching: bool,
    max_pinned_share: f32,
    host_blocks: u32,
    host_load_tokens: f32,
    disk_tier: bool,
    tenant_weights: Vec<(String, f32)>,
    policy: String,
    pipeline_depth: u32,
}

impl Limits {
    /// The core's limits, checked.
    pub fn resolve(self) -> PyResult<EngineLimits> {
        let policy = match self.policy.as_str() {
            "fcfs" => Policy::Fcfs,
            "priority" => Policy::Priority,
            "lpm" => Policy::LongestPrefix,
            "fair" => Policy::FairShare,
            other => return Err(PyValueError::new_err(format!("unknown scheduling policy {other}"))),
        };
        let groups = self.groups.iter().map(|(kind, size, num_blocks)| {
            let keep = match kind.as_str() {
                "last" => Keep::Last(*size),
                "state" => Keep::State { every: *size },
                "fixed" => Keep::Fixed(*size),
                other => return Err(PyValueError::new_err(format!("unknown kind of layer group {other}"))),
            };
            Ok(GroupLimits { keep, num_blocks: *num_blocks })
        });
        let limits = EngineLimits {
            block_size: self.block_size,
            num_blocks: self.num_blocks,
            groups: groups.collect::<PyResult<_>>()?,
            max_model_len: self.max_model_len,
            max_num_seqs: self.max_num_seqs,
            max_num_batched_tokens: self.max_num_batched_tokens,
            long_prefill_token_threshold: self.long_prefill_token_threshold,
            max_num_queued_reqs: self.max_num_queued_reqs,
            max_logprobs: self.max_logprobs,
            vocab_size: self.vocab_size,
            watermark: self.watermark,
            enable_prefix_caching: self.enable_prefix_caching,
            max_pinned_share: self.max_pinned_share,
            host_blocks: self.host_blocks,
            host_load_tokens: self.host_load_tokens,
            disk_tier: self.disk_tier,
            tenant_weights: self
                .tenant_weights
                .iter()
                .map(|(name, weight)| (tenant(name), *weight))
                .collect(),
            // An engine that gets a publisher sets it.
            kv_events: false,
            policy,
            pipeline_depth: self.pipeline_depth,
        };
        limits.check().map_err(Failure::from)?;
        Ok(limits)
    }
}

/// Where each column of a frame and of its result lies, for engines with these limits.
#[pyfunction]
pub fn frame_layout(py: Python<'_>, limits: Limits) -> PyResult<Bound<'_, PyDict>> {
    let layout = FrameLayout::new(&limits.resolve()?);
    let described = PyDict::new(py);
    described.set_item("frame_bytes", layout.frame_bytes)?;
    described.set_item("frame", describe(&layout.frame))?;
    described.set_item("result_bytes", layout.result_bytes)?;
    described.set_item("result", describe(&layout.result))?;
    Ok(described)
}

fn describe(columns: &[Column]) -> Vec<(&'static str, &'static str, usize, Vec<usize>)> {
    let name = |dtype| match dtype {
        DType::I32 => "int32",
        DType::F32 => "float32",
        DType::I64 => "int64",
    };
    columns
        .iter()
        .map(|column| (column.name, name(column.dtype), column.offset_bytes, column.shape.clone()))
        .collect()
}
