//! Log-probabilities in replies.

use serde::{Deserialize, Serialize};

/// Log-probabilities of a chat choice.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ChatLogprobs {
    /// One entry a token.
    pub content: Vec<ChatTokenLogprob>,
}

/// One sampled token in a chat choice.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChatTokenLogprob {
    /// The token's text, or `token_id:N`.
    pub token: String,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// The UTF-8 bytes of the text.
    pub bytes: Option<Vec<u8>>,
    /// The most likely tokens, best first.
    pub top_logprobs: Vec<ChatTopLogprob>,
}

/// An alternative to a sampled token in a chat choice.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChatTopLogprob {
    /// The token's text, or `token_id:N`.
    pub token: String,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// The UTF-8 bytes of the text.
    pub bytes: Option<Vec<u8>>,
}

/// Log-probabilities of a completion choice: four columns, one entry a token.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CompletionLogprobs {
    /// Where the token starts in the choice's text, characters.
    pub text_offset: Vec<usize>,
    /// Natural logarithms; null for the first prompt token.
    pub token_logprobs: Vec<Option<f32>>,
    /// The tokens' texts, or `token_id:N`.
    pub tokens: Vec<String>,
    /// Token text to log-probability, best first; null for the first prompt token.
    pub top_logprobs: Vec<Option<TopMap>>,
}

/// A JSON object from token text to log-probability that keeps its order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopMap(pub Vec<(String, f32)>);

impl Serialize for TopMap {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(token, logprob)| (token, logprob)))
    }
}

impl<'de> Deserialize<'de> for TopMap {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> serde::de::Visitor<'de> for Pairs {
            type Value = TopMap;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a map from token to log-probability")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<TopMap, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(TopMap(pairs))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

/// One alternative at a prompt position, in `prompt_logprobs`: the key is the
/// token id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PromptLogprob {
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// 1 is the most likely.
    pub rank: u32,
    /// The token's text.
    pub decoded_token: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternatives_keep_their_order() {
        let map = TopMap(vec![("z".to_owned(), -0.5), ("a".to_owned(), -2.0)]);
        let json = serde_json::to_string(&map).unwrap();
        assert_eq!(json, r#"{"z":-0.5,"a":-2.0}"#);
        assert_eq!(serde_json::from_str::<TopMap>(&json).unwrap(), map);
    }
}
