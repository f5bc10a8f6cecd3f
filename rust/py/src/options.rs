//! Sampling options from Python.

use octavo_server::SamplingOptions;
use octavo_server::client::Side;
use pyo3::prelude::*;

/// `SamplingOptions` as a mapping with the same names; every key must be there.
#[derive(FromPyObject, Debug)]
#[pyo3(from_item_all)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the API")]
pub struct Options {
    n: i64,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<i64>,
    min_p: Option<f32>,
    presence_penalty: f32,
    frequency_penalty: f32,
    repetition_penalty: Option<f32>,
    seed: Option<i64>,
    stop: Vec<String>,
    stop_token_ids: Vec<i64>,
    include_stop_str_in_output: bool,
    ignore_eos: bool,
    max_tokens: Option<i64>,
    min_tokens: i64,
    logprobs: Option<i64>,
    prompt_logprobs: Option<i64>,
    logit_bias: Vec<(i64, f32)>,
    detokenize: bool,
    skip_special_tokens: bool,
    priority: i64,
    cache_salt: Option<String>,
    cache_ttl_s: Option<f64>,
}

impl From<Options> for SamplingOptions {
    fn from(options: Options) -> Self {
        Self {
            n: options.n,
            temperature: options.temperature,
            top_p: options.top_p,
            top_k: options.top_k,
            min_p: options.min_p,
            presence_penalty: options.presence_penalty,
            frequency_penalty: options.frequency_penalty,
            repetition_penalty: options.repetition_penalty,
            seed: options.seed,
            stop: options.stop,
            stop_token_ids: options.stop_token_ids,
            include_stop_str_in_output: options.include_stop_str_in_output,
            ignore_eos: options.ignore_eos,
            max_tokens: options.max_tokens,
            min_tokens: options.min_tokens,
            logprobs: options.logprobs,
            prompt_logprobs: options.prompt_logprobs,
            logit_bias: options.logit_bias,
            detokenize: options.detokenize,
            skip_special_tokens: options.skip_special_tokens,
            priority: options.priority,
            tenant: 0,
            timeout_s: None,
            queue_timeout_s: None,
            cache_salt: options.cache_salt,
            cache_ttl_s: options.cache_ttl_s,
            cache_prefixes: Vec::new(),
            truncate_prompt_tokens: None,
            truncation_side: Side::Left,
        }
    }
}
