//! One log line a request, when its response begins.

use std::time::Instant;

use axum::extract::{Extension, Request};
use axum::middleware::Next;
use axum::response::Response;

use super::request_id::RequestId;
use crate::http::excerpt::excerpt;

/// Logs method, path, status, time to the response's start and request id.
pub async fn log(Extension(name): Extension<RequestId>, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let path = excerpt(request.uri().path()).into_owned();
    let arrived = Instant::now();
    let response = next.run(request).await;
    let ms = arrived.elapsed().as_secs_f64() * 1e3;
    tracing::info!(request_id = %name.id, "{} {path} {} {ms:.1} ms", excerpt(method.as_str()), response.status().as_u16());
    response
}
