//! Token counts of a request.

use serde::{Deserialize, Serialize};

/// Token counts over all choices of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt or prompts.
    pub prompt_tokens: u32,
    /// Prompt and completion tokens together.
    pub total_tokens: u32,
    /// Sampled tokens.
    pub completion_tokens: u32,
    /// Where the prompt tokens came from; left out where that is switched off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens_details: Option<PromptTokensDetails>,
}

/// Where the prompt tokens came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptTokensDetails {
    /// Prompt tokens whose KV was found in the prefix cache.
    pub cached_tokens: u32,
}
