//! What the engine tells a door.

use crate::ids::{RequestId, Token};

/// One thing that happened to one request.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Whose event it is.
    pub request: RequestId,
    /// What happened.
    pub kind: EventKind,
}

/// The kinds of event, in the order in which a request sees them.
#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    /// First scheduled; these prompt tokens came from the prefix cache.
    Started { cached: CachedTokens },
    /// Log-probabilities of prompt tokens `start..start + entries.len()`. The
    /// first prompt token has none, so `start` is at least 1.
    PromptLogprobs { start: u32, entries: Vec<TokenLogprobs> },
    /// One sampled token. With `finish` it is the last.
    Token { token: Token, logprobs: Option<Box<TokenLogprobs>>, finish: Option<FinishReason> },
    /// Ended without a further token.
    Finished { reason: FinishReason },
}

/// Prompt tokens that came from the prefix cache, by the tier that had them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachedTokens {
    /// On the device.
    pub device: u32,
    /// In host memory.
    pub host: u32,
    /// On disk: fetched to the host for this request or one that waits like it.
    pub disk: u32,
}

impl CachedTokens {
    /// Of all tiers.
    pub fn total(self) -> u32 {
        self.device + self.host + self.disk
    }
}

/// Log-probabilities at one position.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// The token at this position.
    pub token: Token,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// 1 is the most likely.
    pub rank: u32,
    /// The most likely tokens, best first.
    pub top: Vec<(Token, f32)>,
}

/// Why a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end-of-sequence token.
    Eos,
    /// One of the request's own stop tokens.
    StopToken(Token),
    /// `max_tokens` or the context is used up.
    Length,
    /// Aborted by its door.
    Abort,
    /// One of its deadlines has passed.
    Timeout,
    /// The device could not compute it (such as NaN logits).
    Error,
}
