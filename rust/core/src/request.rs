//! What a door asks of the engine.

use std::sync::Arc;

use crate::ids::{RequestId, Token};

/// One sequence to generate. Doors fan `n > 1` out into one request a choice.
#[derive(Clone, Debug)]
pub struct EngineRequest {
    /// Unique for the engine's life.
    pub id: RequestId,
    /// Prompt tokens, at least one, each below the vocabulary size.
    pub prompt: Arc<[Token]>,
    /// How tokens are drawn.
    pub sampling: SamplingParams,
    /// When to stop.
    pub stop: StopRules,
    /// Lower runs first under the priority policy.
    pub priority: i32,
    /// Who sent it; tenants share alike under the fair policy.
    pub tenant: u64,
    /// When it is given up.
    pub deadlines: Deadlines,
    /// Mixed into the prefix cache's keys; requests share cached blocks only
    /// under the same salt.
    pub cache_salt: u64,
    /// Prefixes of the prompt to keep in the prefix cache, shortest first.
    pub retain: Vec<Retain>,
}

/// A prefix that is to be kept: it is evicted after all that is not. No more
/// than a share of memory is kept so
/// ([`EngineLimits::max_pinned_share`](crate::EngineLimits::max_pinned_share)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retain {
    /// Leading tokens of the prompt; whole blocks of them are kept.
    pub tokens: u32,
    /// For so long after the last use, that is, after this request or a later one
    /// that asks for it, on the clock of [`Engine::expire`](crate::Engine::expire).
    pub ttl_ns: u64,
}

/// Times on the clock of whoever drives the engine, nanoseconds; see
/// [`Engine::expire`](crate::Engine::expire). `None` is never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deadlines {
    /// It ends if it has not been scheduled by then.
    pub start_ns: Option<u64>,
    /// It ends.
    pub end_ns: Option<u64>,
}

/// How tokens are drawn. Values are validated and resolved by the door.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// 0 is greedy.
    pub temperature: f32,
    /// In (0, 1]; 1 is off.
    pub top_p: f32,
    /// 0 is off.
    pub top_k: u32,
    /// In [0, 1]; 0 is off.
    pub min_p: f32,
    /// In [-2, 2]; 0 is off.
    pub presence_penalty: f32,
    /// In [-2, 2]; 0 is off.
    pub frequency_penalty: f32,
    /// Above 0; 1 is off.
    pub repetition_penalty: f32,
    /// With the position it decides the random number: (seed, position) -> draw.
    pub seed: u64,
    /// Alternatives to report a sampled token; `Some(0)` reports the token alone.
    pub logprobs: Option<u32>,
    /// Alternatives to report a prompt token. Cached blocks are not read then.
    pub prompt_logprobs: Option<u32>,
    /// Added to the logits of these tokens.
    pub logit_bias: Vec<(Token, f32)>,
}

impl SamplingParams {
    /// True when the worker must know the tokens so far.
    #[allow(clippy::float_cmp, reason = "exactly 1 is the value that turns the penalty off")]
    pub fn needs_history(&self) -> bool {
        self.presence_penalty != 0.0 || self.frequency_penalty != 0.0 || self.repetition_penalty != 1.0
    }
}

/// When to stop. Stop strings are the door's business: it aborts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopRules {
    /// Most output tokens, at least 1. Doors clamp it so that prompt and output fit
    /// [`EngineLimits::context_len`](crate::EngineLimits::context_len); a sequence
    /// that gets there first ends with `Length`.
    pub max_tokens: u32,
    /// Before this many output tokens, the stop tokens below are never sampled.
    pub min_tokens: u32,
    /// End-of-sequence ids of the model; empty with `ignore_eos`.
    pub eos_token_ids: Vec<Token>,
    /// The request's own stop tokens.
    pub stop_token_ids: Vec<Token>,
}
