//! What is known of one request once it has ended.

use std::time::{Duration, Instant};

/// Where the number of output tokens comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenSource {
    /// The server's usage chunk.
    Usage,
    /// Token ids in the stream.
    Ids,
    /// The stream's events, each taken for one token.
    Events,
}

/// A request that completed.
#[derive(Clone, Debug)]
pub struct Record {
    /// When it was to arrive.
    pub scheduled: Instant,
    /// When it was handed to the connection.
    pub sent: Instant,
    /// When each event with output was read; at least one.
    pub events: Vec<Instant>,
    /// When the stream ended.
    pub done: Instant,
    /// By the server's count; 0 if it does not say.
    pub prompt_tokens: u64,
    /// Prompt tokens that the server found in its cache, where it says.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub output_tokens: u64,
    /// How they were counted.
    pub token_source: TokenSource,
}

impl Record {
    /// Time to first token, from the scheduled arrival.
    pub fn ttft(&self) -> Duration {
        self.events[0] - self.scheduled
    }

    /// End-to-end latency, from the scheduled arrival.
    pub fn e2e(&self) -> Duration {
        self.done - self.scheduled
    }

    /// How late it was sent.
    pub fn lag(&self) -> Duration {
        self.sent - self.scheduled
    }

    /// Time per output token after the first; `None` for one token or one event.
    pub fn tpot(&self) -> Option<Duration> {
        let gaps = u32::try_from(self.output_tokens.checked_sub(1)?).ok()?;
        let last = self.events.last()?;
        (gaps > 0 && self.events.len() > 1).then(|| (*last - self.events[0]) / gaps)
    }

    /// Gaps between successive events.
    pub fn inter_token(&self) -> impl Iterator<Item = Duration> {
        self.events.windows(2).map(|pair| pair[1] - pair[0])
    }
}

/// A request that did not complete.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Such as `connect`, `http_503`, `timeout`, `truncated`.
    pub kind: String,
    /// What the server or the connection said.
    pub detail: String,
}

impl Failure {
    /// A failure of this kind.
    pub fn new(kind: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind: kind.into(), detail: detail.into() }
    }
}
