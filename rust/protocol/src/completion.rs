//! `POST /v1/completions`.

use serde::{Deserialize, Serialize};

use crate::chat::PromptLogprobs;
use crate::logprobs::CompletionLogprobs;
use crate::sampling::StopReason;
use crate::usage::Usage;

/// The fields of a completion request that chat does not have.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct CompletionFields {
    /// Text or tokens, one prompt or several; required.
    pub prompt: Option<Prompt>,
    /// Most output tokens. Default 16.
    pub max_tokens: Option<i64>,
    /// Alternatives a token; absent is no log-probabilities.
    pub logprobs: Option<i64>,
    /// Put the prompt before the output. Default false.
    pub echo: Option<bool>,
    /// Let the tokenizer add its own special tokens. Default true.
    pub add_special_tokens: Option<bool>,
}

/// One prompt or several, each as text or as token ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// One text.
    Text(String),
    /// Several texts.
    Texts(Vec<String>),
    /// One list of token ids.
    Tokens(Vec<u32>),
    /// Several lists of token ids.
    TokenLists(Vec<Vec<u32>>),
}

impl<'de> Deserialize<'de> for Prompt {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyPrompt;
        impl<'de> serde::de::Visitor<'de> for AnyPrompt {
            type Value = Prompt;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(
                    "a string, a list of strings, a list of token ids or a list of lists of token ids",
                )
            }
            fn visit_str<E>(self, text: &str) -> Result<Prompt, E> {
                Ok(Prompt::Text(text.to_owned()))
            }
            fn visit_string<E>(self, text: String) -> Result<Prompt, E> {
                Ok(Prompt::Text(text))
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Prompt, A::Error> {
                match seq.next_element::<Item>()? {
                    None => Ok(Prompt::Texts(Vec::new())),
                    Some(Item::Text(first)) => rest(first, &mut seq).map(Prompt::Texts),
                    Some(Item::Token(first)) => rest(first, &mut seq).map(Prompt::Tokens),
                    Some(Item::Tokens(first)) => rest(first, &mut seq).map(Prompt::TokenLists),
                }
            }
        }
        deserializer.deserialize_any(AnyPrompt)
    }
}

/// The remaining elements, all of the first one's type.
fn rest<'de, T: Deserialize<'de>, A: serde::de::SeqAccess<'de>>(
    first: T,
    seq: &mut A,
) -> Result<Vec<T>, A::Error> {
    let mut items = vec![first];
    while let Some(item) = seq.next_element()? {
        items.push(item);
    }
    Ok(items)
}

/// The first element of a prompt list, which says what the list holds.
enum Item {
    Text(String),
    Token(u32),
    Tokens(Vec<u32>),
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyItem;
        impl<'de> serde::de::Visitor<'de> for AnyItem {
            type Value = Item;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string, a token id or a list of token ids")
            }
            fn visit_str<E>(self, text: &str) -> Result<Item, E> {
                Ok(Item::Text(text.to_owned()))
            }
            fn visit_u64<E: serde::de::Error>(self, id: u64) -> Result<Item, E> {
                u32::try_from(id)
                    .map(Item::Token)
                    .map_err(|_| E::custom(format!("token id {id} is out of range")))
            }
            fn visit_i64<E: serde::de::Error>(self, id: i64) -> Result<Item, E> {
                Err(E::custom(format!("token id {id} is negative")))
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Item, A::Error> {
                let mut ids = Vec::new();
                while let Some(id) = seq.next_element()? {
                    ids.push(id);
                }
                Ok(Item::Tokens(ids))
            }
        }
        deserializer.deserialize_any(AnyItem)
    }
}

/// A whole reply, or one chunk of a stream: the shapes are the same but for
/// fields that a chunk leaves out.
#[derive(Clone, Debug, Serialize)]
pub struct CompletionReply<'a> {
    /// `cmpl-...`, the same on every chunk.
    pub id: &'a str,
    /// Always `text_completion`.
    pub object: &'static str,
    /// Unix time, seconds.
    pub created: u64,
    /// The served name.
    pub model: &'a str,
    /// All choices, or one in a chunk; none on the usage chunk.
    pub choices: &'a [CompletionChoice<'a>],
    /// Version and configuration of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_fingerprint: Option<&'a str>,
    /// Token counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// One choice of a reply or chunk.
#[derive(Clone, Debug, Serialize)]
pub struct CompletionChoice<'a> {
    /// Prompt index times n plus the choice of that prompt.
    pub index: u32,
    /// The text, or what is new of it.
    pub text: &'a str,
    /// Null where not asked.
    pub logprobs: Option<CompletionLogprobs>,
    /// `stop`, `length`, `abort` or `error`; null until a choice's last chunk.
    pub finish_reason: Option<&'static str>,
    /// What matched.
    pub stop_reason: Option<&'a StopReason>,
    /// Where asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<&'a [u32]>,
    /// Where asked, on a choice's first chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// Where asked, on a choice's first chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<&'a [u32]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(json: &str) -> Option<Prompt> {
        serde_json::from_str(json).ok()
    }

    #[test]
    fn a_prompt_has_four_forms_and_no_mixture() {
        assert_eq!(prompt(r#""hi""#), Some(Prompt::Text("hi".to_owned())));
        assert_eq!(prompt(r#"["a", "b"]"#), Some(Prompt::Texts(vec!["a".to_owned(), "b".to_owned()])));
        assert_eq!(prompt("[1, 2]"), Some(Prompt::Tokens(vec![1, 2])));
        assert_eq!(prompt("[[1], [], [2, 3]]"), Some(Prompt::TokenLists(vec![vec![1], vec![], vec![2, 3]])));
        assert_eq!(prompt("[]"), Some(Prompt::Texts(Vec::new())));
        for misfit in ["1", "{}", "[1, \"a\"]", "[\"a\", [1]]", "[-1]", "[1.5]", "[4294967296]", "[[\"a\"]]"]
        {
            assert_eq!(prompt(misfit), None, "{misfit}");
        }
    }
}
