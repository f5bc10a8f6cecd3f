//! What metrics must know.

use std::collections::BTreeMap;

use serde::Deserialize;

/// What metrics must know beside the engine's limits. No defaults:
/// `python/octavo/config` has them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricsConfig {
    /// The served model's name: the label `model_name`.
    pub model: String,
    /// Bytes of a KV block on the host and on disk.
    pub block_bytes: u64,
    /// Labels of `cache_config_info` beside those that the limits say.
    pub cache_config: BTreeMap<String, String>,
    /// Tenants that have metrics of their own; 0 is no metrics by tenant.
    pub max_tenants: usize,
}
