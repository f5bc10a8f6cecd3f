//! What a door asks of the client.

use octavo_core::Token;
use serde::Deserialize;

/// Prompts to continue, all with the same options.
#[derive(Clone, Debug)]
pub struct GenerateRequest {
    /// At least one. Choice k of prompt p has index p * n + k.
    pub prompts: Vec<Prompt>,
    /// How to continue them.
    pub options: SamplingOptions,
}

/// One prompt.
#[derive(Clone, Debug)]
pub enum Prompt {
    /// Text to tokenize.
    Text {
        /// The text; special tokens in it are recognised.
        text: String,
        /// Let the tokenizer put its own special tokens around it.
        add_special_tokens: bool,
    },
    /// Token ids.
    Tokens(Vec<Token>),
}

/// How to continue a prompt, in the API's terms; `None` takes the server's
/// default. Ranges are checked by [`super::Client::generate`].
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the API")]
pub struct SamplingOptions {
    /// Choices a prompt, at least 1; must be 1 when greedy.
    pub n: i64,
    /// In [0, 2]; 0 is greedy.
    pub temperature: Option<f32>,
    /// In (0, 1]; 1 is off.
    pub top_p: Option<f32>,
    /// 0 and -1 are off.
    pub top_k: Option<i64>,
    /// In [0, 1]; 0 is off.
    pub min_p: Option<f32>,
    /// In [-2, 2]; 0 is off.
    pub presence_penalty: f32,
    /// In [-2, 2]; 0 is off.
    pub frequency_penalty: f32,
    /// Above 0; 1 is off.
    pub repetition_penalty: Option<f32>,
    /// `None` and -1 take a fresh one.
    pub seed: Option<i64>,
    /// Strings that end the output; none may be empty.
    pub stop: Vec<String>,
    /// Tokens that end the output.
    pub stop_token_ids: Vec<i64>,
    /// Leave the stop string, or the text of the stop token, in the output.
    pub include_stop_str_in_output: bool,
    /// Go on after end-of-sequence.
    pub ignore_eos: bool,
    /// Most output tokens, at least 1; `None` is the rest of the context. More
    /// than the rest is clamped to it.
    pub max_tokens: Option<i64>,
    /// Output tokens before anything but a length limit may end the output.
    pub min_tokens: i64,
    /// Alternatives a sampled token; 0 reports the token alone, -1 the whole vocabulary.
    pub logprobs: Option<i64>,
    /// Alternatives a prompt token.
    pub prompt_logprobs: Option<i64>,
    /// Added to the logits of these tokens; clamped to [-100, 100].
    pub logit_bias: Vec<(i64, f32)>,
    /// Make text of the tokens.
    pub detokenize: bool,
    /// Leave special tokens out of the text.
    pub skip_special_tokens: bool,
    /// Lower runs first; other than 0 needs the priority policy.
    pub priority: i64,
    /// Who asks; tenants share alike under the fair policy.
    pub tenant: u64,
    /// Seconds from arrival to the end, above 0; `None` is the server's limit.
    pub timeout_s: Option<f64>,
    /// Seconds from arrival to the first step, above 0; `None` is the server's limit.
    pub queue_timeout_s: Option<f64>,
    /// Requests share cached prefixes only under the same salt; 1 to 128 characters.
    pub cache_salt: Option<String>,
    /// Keep the prompt in the prefix cache for so many seconds after its last use;
    /// from 0 to the server's limit.
    pub cache_ttl_s: Option<f64>,
    /// Beginnings of the prompt to keep there; with one prompt, which is text.
    pub cache_prefixes: Vec<CachePrefix>,
    /// Keep only this many prompt tokens; -1 is as many as the context holds.
    pub truncate_prompt_tokens: Option<i64>,
    /// Which end of a prompt goes when it is truncated.
    pub truncation_side: Side,
}

/// A beginning of a prompt's text, to keep in the prefix cache as far as the
/// prompt's tokens begin with its own.
#[derive(Clone, Debug, PartialEq)]
pub struct CachePrefix {
    /// The text.
    pub text: String,
    /// Seconds after its last use; more than the server's limit is that limit.
    pub ttl_s: f64,
}

/// An end of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The beginning.
    Left,
    /// The end.
    Right,
}

impl Default for SamplingOptions {
    /// What the API means by fields that are left out.
    fn default() -> Self {
        Self {
            n: 1,
            temperature: None,
            top_p: None,
            top_k: None,
            min_p: None,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: None,
            seed: None,
            stop: Vec::new(),
            stop_token_ids: Vec::new(),
            include_stop_str_in_output: false,
            ignore_eos: false,
            max_tokens: None,
            min_tokens: 0,
            logprobs: None,
            prompt_logprobs: None,
            logit_bias: Vec::new(),
            detokenize: true,
            skip_special_tokens: true,
            priority: 0,
            tenant: 0,
            timeout_s: None,
            queue_timeout_s: None,
            cache_salt: None,
            cache_ttl_s: None,
            cache_prefixes: Vec::new(),
            truncate_prompt_tokens: None,
            truncation_side: Side::Left,
        }
    }
}

/// The client's resolved options. No defaults: `python/octavo/config` has them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientConfig {
    /// Values for what requests leave out.
    pub sampling_defaults: SamplingDefaults,
    /// Tokens that end a sequence unless it ignores them.
    pub eos_token_ids: Vec<Token>,
    /// Where the seeds of requests without one start; `null` draws them.
    pub seed: Option<u64>,
    /// Most choices a prompt.
    pub max_n: u32,
    /// Most stop strings a request.
    pub max_stop_strings: usize,
    /// Most seconds from a request's arrival to its end; 0 is no limit.
    pub request_timeout_s: f64,
    /// Most seconds from a request's arrival to its first step; 0 is no limit.
    pub queue_timeout_s: f64,
    /// Most seconds that a request may keep a prompt in the prefix cache.
    pub max_cache_ttl_s: f64,
}

/// Values for what requests leave out, from the model's generation config.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SamplingDefaults {
    /// `null` is 1.
    pub temperature: Option<f32>,
    /// `null` is 1.
    pub top_p: Option<f32>,
    /// `null` is off.
    pub top_k: Option<i64>,
    /// `null` is off.
    pub min_p: Option<f32>,
    /// `null` is 1.
    pub repetition_penalty: Option<f32>,
    /// `null` is each route's own.
    pub max_tokens: Option<i64>,
}
