//! `POST /tokenize` and `POST /detokenize`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::chat::Message;

/// Text or a conversation to turn into token ids; exactly one of `prompt` and
/// `messages`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct TokenizeRequest {
    /// A served name; may be left out.
    pub model: Option<String>,
    /// Plain text.
    pub prompt: Option<String>,
    /// A conversation, put through the chat template.
    pub messages: Option<Vec<Message>>,
    /// Default true for `prompt`, false for `messages`.
    pub add_special_tokens: Option<bool>,
    /// Reply with the tokens' strings too. Default false.
    pub return_token_strs: Option<bool>,
    /// Default true.
    pub add_generation_prompt: Option<bool>,
    /// Default false.
    pub continue_final_message: Option<bool>,
    /// A template to use in place of the model's own.
    pub chat_template: Option<String>,
    /// More variables for the template.
    pub chat_template_kwargs: Option<Map<String, Value>>,
    /// Handed to the template.
    pub tools: Option<Vec<Value>>,
    /// Handed to the template.
    pub documents: Option<Vec<Value>>,
}

/// Token ids of a text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TokenizeReply {
    /// How many.
    pub count: usize,
    /// Longest sequence (prompt and output), tokens.
    pub max_model_len: u32,
    /// The ids.
    pub tokens: Vec<u32>,
    /// The tokens' strings, where asked, else null.
    pub token_strs: Option<Vec<String>>,
}

/// Token ids to turn into text.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct DetokenizeRequest {
    /// A served name; may be left out.
    pub model: Option<String>,
    /// The ids; required.
    pub tokens: Option<Vec<u32>>,
}

/// The text of token ids.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DetokenizeReply {
    /// The text, special tokens included.
    pub prompt: String,
}
