//! One file or folder a route: validate, convert, answer.

mod breakpoints;
pub mod chat;
pub mod completions;
mod conversation;
mod convert;
pub mod health;
pub mod kv_event_sources;
pub mod load;
mod logprobs;
pub mod metrics;
pub mod models;
pub mod reset_prefix_cache;
pub mod tokenize;
mod usage;
pub mod version;

use crate::client::{Finish, FinishReason};
use crate::http::error::{ApiError, ApiResult};

/// Passes every way to end but the device's failure and a deadline before the
/// first token.
///
/// # Errors
/// 500 for a sequence that could not be computed, 503 for one that was too late.
fn finished(finish: &Finish) -> ApiResult<()> {
    match finish.reason {
        FinishReason::Error => Err(ApiError::internal(
            "the model gave values that are not finite and the request was ended; a lower-precision dtype may overflow: \
             try --dtype bfloat16 or float32",
        )),
        FinishReason::Timeout => Err(ApiError::unavailable(
            "the time of the request (timeout_s, queue_timeout_s or the server's --request-timeout and --queue-timeout) \
             was over before its first token; retry later or elsewhere",
        )),
        FinishReason::Stop | FinishReason::Length | FinishReason::Abort => Ok(()),
    }
}
