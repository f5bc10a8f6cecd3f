//! The error object that every route answers with.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// `{"error": {...}}`.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorObject,
}

/// What went wrong.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct ErrorObject {
    /// What, where and what to do.
    pub message: String,
    /// Class of error, such as `BadRequestError`.
    #[serde(rename = "type")]
    pub kind: Cow<'static, str>,
    /// The request field at fault, or null.
    pub param: Option<Cow<'static, str>>,
    /// The HTTP status.
    pub code: u16,
}
