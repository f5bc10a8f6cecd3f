//! One request over HTTP/1.1 with connections kept alive.

use std::error::Error as _;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, Uri};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::chunk::Chunk;
use super::record::{Failure, Record, TokenSource};
use super::sse::Events;
use crate::error::{Error, Result};

#[cfg(feature = "rustls")]
type Connector = hyper_rustls::HttpsConnector<HttpConnector>;
#[cfg(not(feature = "rustls"))]
type Connector = HttpConnector;

/// Most bytes of a reply that is not a stream.
const LONGEST_REPLY_BYTES: usize = 1 << 20;

/// Talks to one server.
#[derive(Debug)]
pub struct Client {
    http: legacy::Client<Connector, Full<Bytes>>,
    /// Uses every connection once.
    fresh: legacy::Client<Connector, Full<Bytes>>,
    headers: HeaderMap,
    timeout: Duration,
}

/// A completed request with the text that it brought.
#[derive(Debug)]
pub struct Reply {
    /// What was measured.
    pub record: Record,
    /// The generated text.
    pub text: String,
}

impl Client {
    /// A client that sends `headers` (`NAME=VALUE`) with every request.
    ///
    /// # Errors
    /// A header that is none, or no certificates to trust.
    pub fn new(api_key: Option<&str>, headers: &[String], timeout: Duration) -> Result<Self> {
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        let http = builder.pool_timer(TokioTimer::new()).build(connector()?);
        let fresh = builder.pool_max_idle_per_host(0).build(connector()?);
        Ok(Self { http, fresh, headers: header_map(api_key, headers)?, timeout })
    }

    /// Gets a JSON document.
    ///
    /// # Errors
    /// Failures as of a request.
    pub async fn get(&self, uri: &Uri) -> std::result::Result<serde_json::Value, Failure> {
        let request = async {
            let response = self.send(Method::GET, uri, Bytes::new()).await?;
            let bytes = read_all(response).await?;
            serde_json::from_slice(&bytes).map_err(|error| Failure::new("protocol", error.to_string()))
        };
        self.in_time(request).await
    }

    /// Sends `body` and reads the stream to its end.
    ///
    /// # Errors
    /// The failure's kind is `connect`, `timeout`, `http_STATUS`, `stream_error` (an error within the stream),
    /// `truncated`, `empty` (no output) or `protocol`.
    pub async fn stream(
        &self,
        uri: &Uri,
        body: Bytes,
        scheduled: Instant,
    ) -> std::result::Result<Reply, Failure> {
        let request = async {
            let sent = Instant::now();
            let response = self.send(Method::POST, uri, body).await?;
            let mut reading = Reading::default();
            let mut body = response.into_body();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| Failure::new("truncated", error.to_string()))?;
                if let Some(data) = frame.data_ref() {
                    reading.take(data, Instant::now())?;
                }
            }
            reading.finish(scheduled, sent)
        };
        self.in_time(request).await
    }

    async fn in_time<T>(
        &self,
        request: impl Future<Output = std::result::Result<T, Failure>>,
    ) -> std::result::Result<T, Failure> {
        match tokio::time::timeout(self.timeout, request).await {
            Ok(result) => result,
            Err(_) => Err(Failure::new("timeout", format!("no end after {:?}", self.timeout))),
        }
    }

    async fn send(
        &self,
        method: Method,
        uri: &Uri,
        body: Bytes,
    ) -> std::result::Result<Response<Incoming>, Failure> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = self.headers.clone();
        let mut answer = self.http.request(request.clone()).await;
        // A server may close a kept-alive connection while the next request is on its way. Asked again, once, on a
        // new connection; the time of the first try counts.
        if answer.as_ref().is_err_and(closed_unanswered) {
            answer = self.fresh.request(request).await;
        }
        let response = answer.map_err(|error| {
            let kind = if error.is_connect() { "connect" } else { "protocol" };
            Failure::new(kind, causes(&error))
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let detail = read_all(response).await?;
        Err(Failure::new(format!("http_{}", status.as_u16()), String::from_utf8_lossy(&detail)))
    }
}

/// Whether the connection ended before any byte of an answer.
fn closed_unanswered(error: &legacy::Error) -> bool {
    let cause = error.source().and_then(|source| source.downcast_ref::<hyper::Error>());
    cause.is_some_and(hyper::Error::is_incomplete_message)
}

/// What a stream has brought so far.
#[derive(Default)]
struct Reading {
    parser: Events,
    events: Vec<Instant>,
    text: String,
    ids: u64,
    usage: Option<super::chunk::Usage>,
    done: Option<Instant>,
}

impl Reading {
    fn take(&mut self, data: &[u8], now: Instant) -> std::result::Result<(), Failure> {
        if !self.parser.push(data) {
            return Err(Failure::new("protocol", "an event is longer than 16 MiB"));
        }
        while let Some(event) = self.parser.next_event() {
            if event == b"[DONE]" {
                self.done = Some(now);
                continue;
            }
            let chunk: Chunk<'_> = serde_json::from_slice(&event)
                .map_err(|error| Failure::new("protocol", format!("an event is no chunk: {error}")))?;
            if let Some(error) = chunk.error {
                return Err(Failure::new("stream_error", error.to_string()));
            }
            if chunk.has_output() {
                self.events.push(now);
                self.ids += chunk.num_ids() as u64;
                self.text.push_str(chunk.text());
            }
            self.usage = chunk.usage.or(self.usage);
        }
        Ok(())
    }

    fn finish(self, scheduled: Instant, sent: Instant) -> std::result::Result<Reply, Failure> {
        let done = self.done.ok_or_else(|| Failure::new("truncated", "the stream ended without [DONE]"))?;
        if self.events.is_empty() {
            return Err(Failure::new("empty", "the stream brought no output"));
        }
        let counted = self.usage.map_or(0, |usage| usage.completion_tokens);
        let (output_tokens, token_source) = match (counted, self.ids) {
            (0, 0) => (self.events.len() as u64, TokenSource::Events),
            (0, ids) => (ids, TokenSource::Ids),
            (counted, _) => (counted, TokenSource::Usage),
        };
        let record = Record {
            scheduled,
            sent,
            events: self.events,
            done,
            prompt_tokens: self.usage.map_or(0, |usage| usage.prompt_tokens),
            cached_tokens: self.usage.map_or(0, |usage| usage.cached_tokens()),
            output_tokens,
            token_source,
        };
        Ok(Reply { record, text: self.text })
    }
}

async fn read_all(response: Response<Incoming>) -> std::result::Result<Bytes, Failure> {
    let body = Limited::new(response.into_body(), LONGEST_REPLY_BYTES).collect().await;
    body.map(http_body_util::Collected::to_bytes).map_err(|error| Failure::new("protocol", error.to_string()))
}

fn header_map(api_key: Option<&str>, headers: &[String]) -> Result<HeaderMap> {
    let mut map = HeaderMap::new();
    map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(key) = api_key {
        let value = HeaderValue::try_from(format!("Bearer {key}"))
            .map_err(|_| Error::invalid("--api-key has characters that a header cannot hold"))?;
        map.insert(AUTHORIZATION, value);
    }
    for header in headers {
        let parsed = header.split_once('=').and_then(|(name, value)| {
            Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
        });
        let (name, value) = parsed.ok_or_else(|| {
            Error::invalid(format!("--header {header}: write NAME=VALUE, such as X-Tenant=a"))
        })?;
        map.insert(name, value);
    }
    Ok(map)
}

#[cfg(not(feature = "rustls"))]
#[allow(clippy::unnecessary_wraps, reason = "the connector with TLS can fail")]
fn connector() -> Result<Connector> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    Ok(connector)
}

#[cfg(feature = "rustls")]
fn connector() -> Result<Connector> {
    let mut http = HttpConnector::new();
    http.set_nodelay(true);
    http.enforce_http(false);
    let builder = hyper_rustls::HttpsConnectorBuilder::new()
        .with_native_roots()
        .map_err(|error| Error::server(format!("no certificates to trust: {error}")))?;
    Ok(builder.https_or_http().enable_http1().wrap_connector(http))
}

/// The error and what caused it, on one line.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
