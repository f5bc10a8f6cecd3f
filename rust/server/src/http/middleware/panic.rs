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

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::{Body, to_bytes};
    use axum::middleware::from_fn;
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;

    async fn broken() {
        panic!("a bug");
    }

    #[tokio::test]
    async fn a_panic_is_a_500_that_names_the_request() {
        let name = RequestId { id: "abc".into(), from_client: true };
        let router = Router::new().route("/", get(broken)).layer(from_fn(guard)).layer(Extension(name));
        let response = router.oneshot(Request::new(Body::empty())).await.unwrap();
        assert_eq!(response.status(), 500);
        let body = to_bytes(response.into_body(), 10_000).await.unwrap();
        let body: octavo_protocol::ErrorBody = serde_json::from_slice(&body).unwrap();
        assert!(body.error.message.contains("abc") && !body.error.message.contains("a bug"));
    }
}
