//! Tokens to text as they arrive.

use octavo_core::Token;

use crate::tokenizer::{Meaning, Table, Tokenizer};

/// Gives the text that each token adds, never half a character. The pieces joined
/// are what [`Tokenizer::decode`] gives for all tokens at once.
///
/// Bytes that cannot become a character turn into U+FFFD: in byte-level
/// vocabularies one for each broken sequence, in those with byte fallback one for
/// each byte.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    skip_special_tokens: bool,
    /// The start of a character whose other bytes have not come yet.
    pending: Vec<u8>,
    delta: String,
    /// No text has come yet.
    at_start: bool,
    /// No token has come yet.
    first_token: bool,
}

impl Detokenizer {
    /// A detokenizer at the start of a text.
    pub fn new(skip_special_tokens: bool) -> Self {
        Self {
            skip_special_tokens,
            pending: Vec::new(),
            delta: String::new(),
            at_start: true,
            first_token: true,
        }
    }

    /// A detokenizer of text that goes on after other text: a space that marks its
    /// first word stays.
    pub fn after_text(skip_special_tokens: bool) -> Self {
        Self { at_start: false, first_token: false, ..Self::new(skip_special_tokens) }
    }

    /// The text that `token` adds, which may be empty. Tokens outside the vocabulary add nothing.
    pub fn push(&mut self, tokenizer: &Tokenizer, token: Token) -> &str {
        let table = tokenizer.table();
        self.delta.clear();
        if table.piece(token).is_none() || (self.skip_special_tokens && table.is_special(token)) {
            return "";
        }
        if table.rule().first_differs() && std::mem::take(&mut self.first_token) {
            self.push_first_word(table, token);
        } else if table.is_byte(token) {
            self.pending.extend(table.bytes(token));
            self.drain(1);
        } else if table.rule().byte_level {
            self.pending.extend(table.bytes(token));
            self.drain(usize::MAX);
        } else {
            self.break_pending();
            self.delta.push_str(&String::from_utf8_lossy(table.bytes(token)));
        }
        self.strip_start(table);
        &self.delta
    }

    /// What is left at the end: U+FFFD for bytes that did not become a character.
    pub fn finish(&mut self, tokenizer: &Tokenizer) -> &str {
        let table = tokenizer.table();
        self.delta.clear();
        if table.rule().byte_level && !self.pending.is_empty() {
            self.pending.clear();
            self.delta.push(char::REPLACEMENT_CHARACTER);
        }
        self.break_pending();
        self.strip_start(table);
        &self.delta
    }

    fn push_first_word(&mut self, table: &Table, token: Token) {
        if let Some(piece) = table.piece(token)
            && let Meaning::Text(text) = table.rule().meaning(piece, true)
        {
            self.delta.push_str(&String::from_utf8_lossy(&text));
        }
    }

    /// Moves whole characters from `pending` to `delta`. A broken sequence gives a
    /// U+FFFD for every `bytes_per_mark` of its bytes, at least one.
    fn drain(&mut self, bytes_per_mark: usize) {
        let mut done = 0;
        loop {
            let rest = &self.pending[done..];
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    self.delta.push_str(text);
                    done = self.pending.len();
                    break;
                }
                Err(error) => {
                    let (good, bad) = rest.split_at(error.valid_up_to());
                    self.delta.push_str(&String::from_utf8_lossy(good));
                    done += good.len();
                    let Some(len) = error.error_len() else { break };
                    debug_assert!(len <= bad.len());
                    for _ in 0..len.div_ceil(bytes_per_mark) {
                        self.delta.push(char::REPLACEMENT_CHARACTER);
                    }
                    done += len;
                }
            }
        }
        self.pending.drain(..done);
    }

    /// Gives up on the pending bytes: the token that follows is not a byte.
    fn break_pending(&mut self) {
        for _ in self.pending.drain(..) {
            self.delta.push(char::REPLACEMENT_CHARACTER);
        }
    }

    fn strip_start(&mut self, table: &Table) {
        if self.at_start && !self.delta.is_empty() {
            self.at_start = false;
            if table.rule().strip_start && self.delta.starts_with(' ') {
                self.delta.remove(0);
            }
        }
    }
}
