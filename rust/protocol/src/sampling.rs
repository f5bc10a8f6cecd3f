//! Request fields that chat and text completions share.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How to sample, when to stop and what to report. Ranges are checked by the
/// server; integers are wide here so that it can say what is out of range.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SamplingFields {
    /// A served name; may be left out.
    pub model: Option<String>,
    /// Choices per prompt. Default 1.
    pub n: Option<i64>,
    /// 0 is greedy.
    pub temperature: Option<f32>,
    /// In (0, 1]; 1 is off.
    pub top_p: Option<f32>,
    /// 0 or -1 is off.
    pub top_k: Option<i64>,
    /// In [0, 1]; 0 is off.
    pub min_p: Option<f32>,
    /// In [-2, 2]; 0 is off.
    pub presence_penalty: Option<f32>,
    /// In [-2, 2]; 0 is off.
    pub frequency_penalty: Option<f32>,
    /// Above 0; 1 is off.
    pub repetition_penalty: Option<f32>,
    /// The same seed gives the same tokens; -1 or absent is a fresh one.
    pub seed: Option<i64>,
    /// Strings that end the output.
    pub stop: Option<Stop>,
    /// Tokens that end the output.
    pub stop_token_ids: Option<Vec<i64>>,
    /// Leave the stop string in the output. Default false.
    pub include_stop_str_in_output: Option<bool>,
    /// Go on after end-of-sequence. Default false.
    pub ignore_eos: Option<bool>,
    /// Output tokens before anything may end the output.
    pub min_tokens: Option<i64>,
    /// Leave special tokens out of the text. Default true.
    pub skip_special_tokens: Option<bool>,
    /// Token id (as a string) to what is added to its logit.
    pub logit_bias: Option<BTreeMap<String, f32>>,
    /// Alternatives a prompt token; -1 is the whole vocabulary.
    pub prompt_logprobs: Option<i64>,
    /// Keep only this many prompt tokens; -1 is the whole context.
    pub truncate_prompt_tokens: Option<i64>,
    /// Which side to cut: `left` (default) or `right`.
    pub truncation_side: Option<String>,
    /// Send chunks as they come. Default false.
    pub stream: Option<bool>,
    /// What to send besides; needs `stream`.
    pub stream_options: Option<StreamOptions>,
    /// Lower runs first under the priority policy.
    pub priority: Option<i64>,
    /// Whom the request is for. Tells tenants apart where API keys do not.
    pub user: Option<String>,
    /// Seconds from the request's arrival to its end. If they are over, what is
    /// there is the reply, with finish reason `length` and stop reason `timeout`;
    /// without a token, or if the server expects that already at the start, the
    /// reply is 503.
    pub timeout_s: Option<f64>,
    /// Seconds from the request's arrival until it must have begun to run; the
    /// reply is 503 else.
    pub queue_timeout_s: Option<f64>,
    /// Isolates the prefix cache; 1 to 128 characters.
    pub cache_salt: Option<String>,
    /// Keep the prompt in the prefix cache for so many seconds after its last use.
    pub cache_ttl_s: Option<f64>,
    /// The reply's id, after its prefix.
    pub request_id: Option<String>,
    /// Reply with token ids too. Default false.
    pub return_token_ids: Option<bool>,
    /// Name tokens `token_id:N` in log-probabilities. Default: the server's.
    pub return_tokens_as_token_ids: Option<bool>,
}

/// Fields that are known but not supported yet. The server refuses a value that
/// would change the outcome, rather than ignore it.
#[derive(Clone, Debug, Default, Deserialize)]
#[expect(missing_docs, reason = "the names are the API's; none does anything yet")]
pub struct RefusedFields {
    pub use_beam_search: Option<Value>,
    pub length_penalty: Option<Value>,
    pub best_of: Option<Value>,
    pub suffix: Option<Value>,
    pub prompt_embeds: Option<Value>,
    pub bad_words: Option<Value>,
    pub allowed_token_ids: Option<Value>,
    pub logprob_token_ids: Option<Value>,
    pub structured_outputs: Option<Value>,
    pub guided_json: Option<Value>,
    pub guided_regex: Option<Value>,
    pub guided_choice: Option<Value>,
    pub guided_grammar: Option<Value>,
    pub guided_decoding_backend: Option<Value>,
    pub guided_whitespace_pattern: Option<Value>,
    pub response_format: Option<Value>,
    pub thinking_token_budget: Option<Value>,
    pub mm_processor_kwargs: Option<Value>,
    pub media_io_kwargs: Option<Value>,
    pub mm_payload: Option<Value>,
    pub return_token_offsets: Option<Value>,
    pub kv_transfer_params: Option<Value>,
    pub ec_transfer_params: Option<Value>,
    pub vllm_xargs: Option<Value>,
    pub repetition_detection: Option<Value>,
    pub stream_interval: Option<Value>,
    pub watermarking: Option<Value>,
    pub routed_experts_prompt_start: Option<Value>,
    pub functions: Option<Value>,
    pub function_call: Option<Value>,
}

/// `stop`: one string or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop(pub Vec<String>);

impl<'de> Deserialize<'de> for Stop {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StringOrList;
        impl<'de> serde::de::Visitor<'de> for StringOrList {
            type Value = Stop;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string or a list of strings")
            }
            fn visit_str<E>(self, text: &str) -> Result<Stop, E> {
                Ok(Stop(vec![text.to_owned()]))
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Stop, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = seq.next_element()? {
                    texts.push(text);
                }
                Ok(Stop(texts))
            }
        }
        deserializer.deserialize_any(StringOrList)
    }
}

/// What to send with a stream.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct StreamOptions {
    /// A last chunk with the usage. Default false.
    pub include_usage: Option<bool>,
    /// Running usage on every chunk. Default false.
    pub continuous_usage_stats: Option<bool>,
}

/// What matched at the end of a choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StopReason {
    /// One of `stop_token_ids`.
    Token(u32),
    /// One of `stop`.
    Text(String),
}

/// Values handed to a chat template by name.
pub type TemplateKwargs = Map<String, Value>;
