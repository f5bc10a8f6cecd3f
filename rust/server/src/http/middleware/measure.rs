//! Measures each request for metrics, to the last byte of its answer.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use http_body::{Frame, SizeHint};

use crate::metrics::{Answered, HttpMetrics};

/// Routes that are asked all the time by machines that watch, and are not measured.
const WATCHED: [&str; 7] =
    ["/metrics", "/health", "/load", "/ping", "/version", "/ready", "/health_generate"];
/// The handler of paths that no route has, whatever they are.
const NO_HANDLER: &str = "none";

/// Measures a request, unless it is for one of the [`WATCHED`] routes.
pub async fn measure(State(metrics): State<HttpMetrics>, request: Request, next: Next) -> Response {
    let handler = request.extensions().get::<MatchedPath>().cloned();
    if handler.as_ref().is_some_and(|handler| WATCHED.contains(&handler.as_str())) {
        return next.run(request).await;
    }
    let read = Arc::new(AtomicU64::new(0));
    let mut call = Call {
        metrics,
        handler,
        method: known_method(request.method()),
        // Unless there is an answer, the client has left.
        status: "4xx",
        began: Instant::now(),
        read: Arc::clone(&read),
        sent: 0,
    };
    let count = move |bytes| _ = read.fetch_add(bytes, Ordering::Relaxed);
    let request = request.map(|body| Body::new(Counted { body, count }));
    let response = next.run(request).await;
    call.status = class(response.status());
    response.map(|body| Body::new(Counted { body, count: move |bytes| call.sent(bytes) }))
}

/// One request; it is counted when it is dropped.
struct Call {
    metrics: HttpMetrics,
    handler: Option<MatchedPath>,
    method: &'static str,
    status: &'static str,
    began: Instant,
    read: Arc<AtomicU64>,
    sent: u64,
}

impl Call {
    fn sent(&mut self, bytes: u64) {
        self.sent += bytes;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.metrics.answered(Answered {
            handler: self.handler.as_ref().map_or(NO_HANDLER, MatchedPath::as_str),
            method: self.method,
            status: self.status,
            request_bytes: self.read.load(Ordering::Relaxed),
            response_bytes: self.sent,
            time: self.began.elapsed(),
        });
    }
}

/// A body that tells of each piece's length.
struct Counted<F> {
    body: Body,
    count: F,
}

impl<F: FnMut(u64) + Unpin> http_body::Body for Counted<F> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(data) = frame.data_ref()
        {
            (self.count)(data.len() as u64);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Methods from outside are any words; few are known.
fn known_method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::OPTIONS => "OPTIONS",
        Method::HEAD => "HEAD",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::PATCH => "PATCH",
        _ => "other",
    }
}

fn class(status: StatusCode) -> &'static str {
    match status.as_u16() / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    }
}
