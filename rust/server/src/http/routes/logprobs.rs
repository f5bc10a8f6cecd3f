//! Log-probabilities from the core's form to the API's.

use std::collections::BTreeMap;

use octavo_core::{Token, TokenLogprobs};
use octavo_protocol::chat::PromptLogprobs;
use octavo_protocol::logprobs::TopMap;
use octavo_protocol::{ChatLogprobs, ChatTokenLogprob, ChatTopLogprob, CompletionLogprobs, PromptLogprob};
use octavo_text::Tokenizer;

/// What stands for minus infinity, which JSON does not have.
const LOWEST: f32 = -9999.0;

/// Writes tokens as the request asks for.
#[derive(Clone, Copy, Debug)]
pub struct TokenNames {
    /// `token_id:N` rather than text.
    pub as_ids: bool,
}

impl TokenNames {
    fn name(self, tokenizer: &Tokenizer, token: Token) -> String {
        if self.as_ids { format!("token_id:{token}") } else { tokenizer.token_text(token).into_owned() }
    }

    /// A chat choice's log-probabilities.
    pub fn chat(self, tokenizer: &Tokenizer, entries: &[TokenLogprobs]) -> ChatLogprobs {
        let top = |&(token, logprob): &(Token, f32)| ChatTopLogprob {
            token: self.name(tokenizer, token),
            logprob: finite(logprob),
            bytes: Some(tokenizer.token_bytes(token).to_vec()),
        };
        let entry = |entry: &TokenLogprobs| ChatTokenLogprob {
            token: self.name(tokenizer, entry.token),
            logprob: finite(entry.logprob),
            bytes: Some(tokenizer.token_bytes(entry.token).to_vec()),
            top_logprobs: entry.top.iter().map(top).collect(),
        };
        ChatLogprobs { content: entries.iter().map(entry).collect() }
    }

    /// Adds entries to a completion choice's columns; `offset` is where the
    /// next token starts in the text, characters.
    pub fn completion(
        self,
        tokenizer: &Tokenizer,
        entries: &[TokenLogprobs],
        offset: &mut usize,
        columns: &mut CompletionLogprobs,
    ) {
        for entry in entries {
            let name = self.name(tokenizer, entry.token);
            let sampled = (entry.token, entry.logprob);
            let others = entry.top.iter().copied().filter(|(token, _)| *token != entry.token);
            let mut top: Vec<(Token, f32)> = std::iter::once(sampled).chain(others).collect();
            top.sort_by(|a, b| b.1.total_cmp(&a.1));
            let top = top.into_iter().map(|(token, logprob)| (self.name(tokenizer, token), finite(logprob)));
            columns.top_logprobs.push(Some(TopMap(top.collect())));
            columns.token_logprobs.push(Some(finite(entry.logprob)));
            place(name, offset, columns);
        }
    }

    /// Adds a prompt's tokens to the columns: the first has no log-probability.
    pub fn completion_prompt(
        self,
        tokenizer: &Tokenizer,
        tokens: &[Token],
        entries: &[TokenLogprobs],
        offset: &mut usize,
        columns: &mut CompletionLogprobs,
    ) {
        let Some(first) = tokens.first() else { return };
        columns.top_logprobs.push(None);
        columns.token_logprobs.push(None);
        place(self.name(tokenizer, *first), offset, columns);
        self.completion(tokenizer, entries, offset, columns);
    }
}

/// Adds a token's name and where it starts.
fn place(name: String, offset: &mut usize, columns: &mut CompletionLogprobs) {
    columns.text_offset.push(*offset);
    *offset += name.chars().count();
    columns.tokens.push(name);
}

/// `prompt_logprobs` of a reply: null for the first token, then by token id.
pub fn prompt(tokenizer: &Tokenizer, entries: &[TokenLogprobs]) -> PromptLogprobs {
    let text = |token: Token| tokenizer.token_text(token).into_owned();
    let position = |entry: &TokenLogprobs| {
        let ranked = entry.top.iter().zip(1..).map(|(&(token, logprob), rank)| (token, logprob, rank));
        let all = ranked.chain([(entry.token, entry.logprob, entry.rank)]);
        let by_id: BTreeMap<_, _> = all
            .map(|(token, logprob, rank)| {
                (token, PromptLogprob { logprob: finite(logprob), rank, decoded_token: text(token) })
            })
            .collect();
        Some(by_id)
    };
    std::iter::once(None).chain(entries.iter().map(position)).collect()
}

fn finite(logprob: f32) -> f32 {
    logprob.max(LOWEST)
}
