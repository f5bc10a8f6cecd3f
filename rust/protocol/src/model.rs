//! `GET /v1/models`.

use serde::{Deserialize, Serialize};

/// The list of served names.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModelList {
    /// Always `list`.
    pub object: String,
    /// One card a name.
    pub data: Vec<ModelCard>,
}

/// One name under which the model is served.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModelCard {
    /// The name.
    pub id: String,
    /// Always `model`.
    pub object: String,
    /// Unix time of the server's start, seconds.
    pub created: u64,
    /// Always `octavo`.
    pub owned_by: String,
    /// Where the weights came from.
    pub root: String,
    /// The base model of an adapter, else null.
    pub parent: Option<String>,
    /// Longest sequence (prompt and output), tokens.
    pub max_model_len: u32,
    /// One entry; clients expect it.
    pub permission: Vec<ModelPermission>,
}

/// What a client may do with a model. Fixed values that clients expect.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "the shape is the vendor's")]
pub struct ModelPermission {
    /// `modelperm-...`.
    pub id: String,
    /// Always `model_permission`.
    pub object: String,
    /// Unix time, seconds.
    pub created: u64,
    /// Always false.
    pub allow_create_engine: bool,
    /// Always true.
    pub allow_sampling: bool,
    /// Always true.
    pub allow_logprobs: bool,
    /// Always false.
    pub allow_search_indices: bool,
    /// Always true.
    pub allow_view: bool,
    /// Always false.
    pub allow_fine_tuning: bool,
    /// Always `*`.
    pub organization: String,
    /// Always null.
    pub group: Option<String>,
    /// Always false.
    pub is_blocking: bool,
}
