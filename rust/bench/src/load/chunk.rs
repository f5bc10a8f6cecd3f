//! What a stream's chunks say, for completions and chat alike.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// The fields of a chunk that are measured.
#[derive(Debug, Deserialize)]
pub struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Vec<Choice<'a>>,
    /// Usually on the last chunk only.
    pub usage: Option<Usage>,
    /// The request failed after its stream had begun.
    pub error: Option<serde_json::Value>,
}

/// The server's own counts.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Usage {
    /// Prompt tokens.
    #[serde(default)]
    pub prompt_tokens: u64,
    /// Generated tokens.
    #[serde(default)]
    pub completion_tokens: u64,
    prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    token_ids: Option<Vec<u32>>,
    finish_reason: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
    #[serde(borrow, alias = "reasoning_content")]
    reasoning: Option<Cow<'a, str>>,
    tool_calls: Option<IgnoredAny>,
}

impl Usage {
    /// Prompt tokens that came from the server's cache, where it says.
    pub fn cached_tokens(&self) -> u64 {
        self.prompt_tokens_details.and_then(|details| details.cached_tokens).unwrap_or(0)
    }
}

impl Chunk<'_> {
    /// True if the chunk brings output. A chat's first chunk, which names the
    /// role, and a last one, which only says why the stream ends, bring none. A
    /// completion's empty text does: a token that is not yet a character.
    pub fn has_output(&self) -> bool {
        self.choices.iter().any(Choice::has_output)
    }

    /// Token ids in the chunk, where the server sends them.
    pub fn num_ids(&self) -> usize {
        self.choices.iter().filter_map(|choice| choice.token_ids.as_ref()).map(Vec::len).sum()
    }

    /// Text that belongs to the conversation from here on.
    pub fn text(&self) -> &str {
        let Some(choice) = self.choices.first() else { return "" };
        let content = choice.delta.as_ref().and_then(|delta| delta.content.as_deref());
        choice.text.as_deref().or(content).unwrap_or("")
    }
}

impl Choice<'_> {
    fn has_output(&self) -> bool {
        if let Some(ids) = &self.token_ids
            && !ids.is_empty()
        {
            return true;
        }
        let full = |text: &Option<Cow<'_, str>>| text.as_ref().is_some_and(|text| !text.is_empty());
        match (&self.text, &self.delta) {
            (Some(text), _) => !text.is_empty() || self.finish_reason.is_none(),
            (None, Some(delta)) => {
                full(&delta.content) || full(&delta.reasoning) || delta.tool_calls.is_some()
            }
            (None, None) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(json: &str) -> bool {
        serde_json::from_str::<Chunk<'_>>(json).unwrap().has_output()
    }

    #[test]
    fn only_chunks_with_output_count() {
        assert!(output(r#"{"choices": [{"text": " a", "finish_reason": null}]}"#));
        assert!(output(r#"{"choices": [{"text": ""}]}"#));
        assert!(output(r#"{"choices": [{"text": "", "token_ids": [2], "finish_reason": "stop"}]}"#));
        assert!(output(r#"{"choices": [{"delta": {"content": "a\n"}}]}"#));
        assert!(output(r#"{"choices": [{"delta": {"reasoning_content": "hm"}}]}"#));
        assert!(output(r#"{"choices": [{"delta": {"tool_calls": [{"index": 0}]}}]}"#));
        assert!(!output(r#"{"choices": [{"text": "", "finish_reason": "length"}]}"#));
        assert!(!output(r#"{"choices": [{"delta": {"role": "assistant", "content": ""}}]}"#));
        assert!(!output(r#"{"choices": [{"delta": {}, "finish_reason": "stop"}]}"#));
        assert!(!output(r#"{"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}"#));
    }

    #[test]
    fn usage_is_read_with_and_without_details() {
        let chunk: Chunk<'_> = serde_json::from_str(
            r#"{"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}}}"#,
        )
        .unwrap();
        let usage = chunk.usage.unwrap();
        assert_eq!((usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens()), (9, 2, 8));
        let chunk: Chunk<'_> =
            serde_json::from_str(r#"{"usage": {"completion_tokens": 2, "prompt_tokens_details": null}}"#)
                .unwrap();
        assert_eq!(chunk.usage.unwrap().cached_tokens(), 0);
    }
}
