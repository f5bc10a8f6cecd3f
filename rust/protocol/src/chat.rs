//! `POST /v1/chat/completions`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::logprobs::{ChatLogprobs, PromptLogprob};
use crate::sampling::StopReason;
use crate::usage::Usage;

/// The fields of a chat request that text completions do not have.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ChatFields {
    /// The conversation; required.
    pub messages: Option<Vec<Message>>,
    /// Most output tokens. Default: the rest of the context.
    pub max_completion_tokens: Option<i64>,
    /// The older name of `max_completion_tokens`.
    pub max_tokens: Option<i64>,
    /// Report log-probabilities. Default false.
    pub logprobs: Option<bool>,
    /// Alternatives a token; needs `logprobs`. -1 is the whole vocabulary.
    pub top_logprobs: Option<i64>,
    /// Prepend the last message if it has the reply's role. Default false.
    pub echo: Option<bool>,
    /// Default true.
    pub add_generation_prompt: Option<bool>,
    /// Default false; excludes `add_generation_prompt`.
    pub continue_final_message: Option<bool>,
    /// Let the tokenizer add its own special tokens. Default false.
    pub add_special_tokens: Option<bool>,
    /// Handed to the template.
    pub documents: Option<Vec<Value>>,
    /// A template to use in place of the model's own.
    pub chat_template: Option<String>,
    /// More variables for the template.
    pub chat_template_kwargs: Option<Map<String, Value>>,
    /// Handed to the template as a variable.
    pub reasoning_effort: Option<String>,
    /// Functions that the model may call.
    pub tools: Option<Vec<Value>>,
    /// Keep the prompt up to the end of the last message in the prefix cache, as
    /// `cache_control` of a message or part keeps it up to there:
    /// `{"type": "ephemeral", "ttl": "5m"}` (default) or `"1h"`.
    pub cache_control: Option<Value>,
    /// `none`, `auto`, `required` or a named function.
    pub tool_choice: Option<Value>,
    /// Reply with the templated prompt. Default false.
    pub return_prompt_text: Option<bool>,
}

/// One message of a conversation: `role`, `content` (a string or a list of
/// parts) and what else the template may use, such as `tool_calls`.
pub type Message = Map<String, Value>;

/// A whole reply.
#[derive(Clone, Debug, Serialize)]
pub struct ChatReply<'a> {
    /// `chatcmpl-...`.
    pub id: &'a str,
    /// Always `chat.completion`.
    pub object: &'static str,
    /// Unix time, seconds.
    pub created: u64,
    /// The served name.
    pub model: &'a str,
    /// One entry a choice.
    pub choices: Vec<ChatChoice>,
    /// Always null.
    pub service_tier: Option<&'a str>,
    /// Version and configuration of the server.
    pub system_fingerprint: &'a str,
    /// Token counts.
    pub usage: Usage,
    /// One entry a prompt token, the first null; null where not asked.
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// Where asked, else null.
    pub prompt_token_ids: Option<&'a [u32]>,
    /// The templated prompt, where asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_text: Option<&'a str>,
    /// Always null.
    pub kv_transfer_params: Option<&'a str>,
}

/// `prompt_logprobs`: for each prompt position, token id to log-probability.
pub type PromptLogprobs = Vec<Option<BTreeMap<u32, PromptLogprob>>>;

/// One choice of a whole reply.
#[derive(Clone, Debug, Serialize)]
pub struct ChatChoice {
    /// Which.
    pub index: u32,
    /// What the model said.
    pub message: ChatMessage,
    /// Null where not asked.
    pub logprobs: Option<ChatLogprobs>,
    /// `stop`, `length`, `abort` or `error`.
    pub finish_reason: &'static str,
    /// What matched, else null.
    pub stop_reason: Option<StopReason>,
    /// Where asked, else null.
    pub token_ids: Option<Vec<u32>>,
}

/// What the model said.
#[derive(Clone, Debug, Serialize)]
pub struct ChatMessage {
    /// `assistant`, or the server's response role.
    pub role: String,
    /// The text.
    pub content: String,
    /// Always null.
    pub refusal: Option<&'static str>,
    /// Always null.
    pub annotations: Option<&'static str>,
    /// Always null.
    pub audio: Option<&'static str>,
    /// Always null.
    pub function_call: Option<&'static str>,
    /// Always empty.
    pub tool_calls: [&'static str; 0],
    /// Always null.
    pub reasoning: Option<&'static str>,
}

/// One chunk of a stream.
#[derive(Clone, Debug, Serialize)]
pub struct ChatChunk<'a> {
    /// `chatcmpl-...`, the same on every chunk.
    pub id: &'a str,
    /// Always `chat.completion.chunk`.
    pub object: &'static str,
    /// Unix time, seconds.
    pub created: u64,
    /// The served name.
    pub model: &'a str,
    /// One choice; none on the usage chunk.
    pub choices: &'a [ChatChunkChoice<'a>],
    /// Version and configuration of the server; on the last chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_fingerprint: Option<&'a str>,
    /// Token counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// On the first chunk, where asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<&'a [u32]>,
    /// On the first chunk, where asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_text: Option<&'a str>,
}

/// One choice in a chunk.
#[derive(Clone, Debug, Serialize)]
pub struct ChatChunkChoice<'a> {
    /// Which.
    pub index: u32,
    /// What is new.
    pub delta: ChatDelta<'a>,
    /// Of the tokens in this chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<ChatLogprobs>,
    /// Null until the choice's last chunk.
    pub finish_reason: Option<&'static str>,
    /// What matched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<&'a StopReason>,
    /// Tokens in this chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<&'a [u32]>,
}

/// What is new in a chunk.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ChatDelta<'a> {
    /// On the first chunk of a choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'a str>,
    /// Text to append.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<&'a str>,
}
