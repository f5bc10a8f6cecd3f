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
    /// First scheduled; this many prompt tokens came from the prefix cache.
    Started { cached_tokens: u32 },
    /// Log-probabilities of prompt tokens `start..start + entries.len()`. The
    /// first prompt token has none, so `start` is at least 1.
    PromptLogprobs { start: u32, entries: Vec<TokenLogprobs> },
    /// One sampled token. With `finish` it is the last.
    Token { token: Token, logprobs: Option<Box<TokenLogprobs>>, finish: Option<FinishReason> },
    /// Ended without a further token.
    Finished { reason: FinishReason },
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
