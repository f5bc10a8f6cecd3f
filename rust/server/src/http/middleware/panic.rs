//! A bug in a handler costs its own request, not the server.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use axum::extract::{Extension, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;

use super::request_id::RequestId;
use crate::http::error::ApiError;

/// Turns a panic below into a 500 that names the request.
pub async fn guard(Extension(name): Extension<RequestId>, request: Request, next: Next) -> Response {
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(panic) => {
            tracing::error!(request_id = %name.id, "a handler panicked: {}", text(panic.as_ref()));
            let message =
                format!("an internal error happened; the server's log has it under request id {}", name.id);
            ApiError::internal(message).into_response()
        }
    }
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
}
