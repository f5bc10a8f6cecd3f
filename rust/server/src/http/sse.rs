//! A response body of server-sent events made from an [`OutputStream`].

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use http_body::Frame;
use serde::Serialize;
use tokio::time::{Instant, Sleep, sleep};

use super::error::{ApiError, ApiResult};
use super::state::LoadTicket;
use crate::client::{Delta, OutputStream};

/// Bytes set aside for the events of one wake-up.
const FRAME_BYTES: usize = 512;
/// A frame longer than this leaves before more events are added, bytes.
const MAX_FRAME_BYTES: usize = 64 * 1024;

/// A route's way to write events.
pub trait ChunkWriter: Send + Unpin + 'static {
    /// Writes the events of one delta. The first call also writes what comes
    /// before all deltas.
    ///
    /// # Errors
    /// Ends the stream with the error.
    fn delta(&mut self, output: &OutputStream, delta: Delta, events: &mut Events) -> ApiResult<()>;

    /// Writes what comes after the last delta.
    fn end(&mut self, output: &OutputStream, events: &mut Events);
}

/// Events written but not sent yet.
#[derive(Debug, Default)]
pub struct Events(Vec<u8>);

impl Events {
    /// Adds `data: {value}`.
    pub fn push(&mut self, value: &impl Serialize) {
        self.0.reserve(FRAME_BYTES);
        self.0.extend_from_slice(b"data: ");
        if let Err(error) = serde_json::to_writer(&mut self.0, value) {
            // Writing to memory cannot fail, and chunks have no keys that are not strings.
            tracing::error!("a chunk could not be written as JSON: {error}");
        }
        self.0.extend_from_slice(b"\n\n");
    }

    fn push_done(&mut self) {
        self.0.extend_from_slice(b"data: [DONE]\n\n");
    }
}

/// A streaming response; dropping its body aborts the generation.
pub fn response(
    output: OutputStream,
    writer: impl ChunkWriter,
    keep_alive_s: u64,
    ticket: LoadTicket,
) -> Response {
    let keep_alive = (keep_alive_s > 0).then(|| KeepAlive::new(Duration::from_secs(keep_alive_s)));
    let body = SseBody { output, writer, keep_alive, done: false, _ticket: ticket };
    let mut response = Response::new(Body::new(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

struct SseBody<W> {
    output: OutputStream,
    writer: W,
    keep_alive: Option<KeepAlive>,
    done: bool,
    _ticket: LoadTicket,
}

impl<W: ChunkWriter> SseBody<W> {
    /// Writes all events that are ready; true when the stream is over.
    fn write_ready(&mut self, cx: &mut Context<'_>, events: &mut Events) -> bool {
        while events.0.len() < MAX_FRAME_BYTES {
            match self.output.poll_delta(cx) {
                Poll::Pending => return false,
                Poll::Ready(Some(Ok(delta))) => {
                    if let Err(error) = self.writer.delta(&self.output, delta, events) {
                        events.push(&error.body());
                        return true;
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    events.push(&ApiError::from(error).body());
                    return true;
                }
                Poll::Ready(None) => {
                    self.writer.end(&self.output, events);
                    return true;
                }
            }
        }
        false
    }
}

impl<W: ChunkWriter> http_body::Body for SseBody<W> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        if this.done {
            return Poll::Ready(None);
        }
        let mut events = Events::default();
        this.done = this.write_ready(cx, &mut events);
        if this.done {
            events.push_done();
        }
        if events.0.is_empty() {
            let Some(keep_alive) = &mut this.keep_alive else { return Poll::Pending };
            ready!(keep_alive.poll_due(cx));
            events.0.extend_from_slice(b": keep-alive\n\n");
        }
        if let Some(keep_alive) = &mut this.keep_alive {
            keep_alive.restart();
        }
        Poll::Ready(Some(Ok(Frame::data(events.0.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.done
    }
}

/// Says when a stream has been silent for too long.
struct KeepAlive {
    interval: Duration,
    due: Pin<Box<Sleep>>,
}

impl KeepAlive {
    fn new(interval: Duration) -> Self {
        Self { interval, due: Box::pin(sleep(interval)) }
    }

    fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.due.as_mut().poll(cx)
    }

    fn restart(&mut self) {
        self.due.as_mut().reset(Instant::now() + self.interval);
    }
}
