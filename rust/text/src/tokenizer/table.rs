//! What every token stands for, laid out once.

use octavo_core::Token;
use tokenizers::Tokenizer as Inner;

use super::rule::{Meaning, Rule};
use crate::error::{Error, Result};

/// Largest vocabulary. A token past it would make the table itself a burden.
const MAX_VOCAB: usize = 1 << 22;

/// Pieces and bytes by token, in two arenas.
#[derive(Debug)]
pub(crate) struct Table {
    rule: Rule,
    pieces: String,
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    longest_bytes: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    piece_end: u32,
    bytes_end: u32,
    present: bool,
    special: bool,
    /// One byte of a run that is decoded together.
    byte: bool,
}

impl Table {
    pub(crate) fn new(inner: &Inner) -> Result<Self> {
        let decoder = serde_json::to_value(inner.get_decoder())
            .map_err(|error| Error::Internal(format!("reading the decoder failed: {error}")))?;
        let rule = Rule::from_decoder(&decoder)?;
        let vocab = inner.get_vocab(true);
        let len = vocab.values().max().map_or(0, |last| *last as usize + 1);
        if len > MAX_VOCAB {
            return Err(Error::model(format!(
                "has the token {}; at most {MAX_VOCAB} are supported",
                len - 1
            )));
        }
        let mut names: Vec<Option<&str>> = vec![None; len];
        for (piece, token) in &vocab {
            names[*token as usize] = Some(piece);
        }
        let mut table = Self {
            rule,
            pieces: String::new(),
            bytes: Vec::new(),
            entries: Vec::with_capacity(len),
            longest_bytes: 0,
        };
        let added = inner.get_added_vocabulary();
        for (token, name) in names.into_iter().enumerate() {
            let normalized = added.simple_id_to_token(token as Token);
            let special = name.is_some_and(|name| added.is_special_token(name));
            table.push(name, normalized.as_deref(), special);
        }
        Ok(table)
    }

    /// Adds the next token. `decoded` is the piece as the decoder sees it, where that differs.
    fn push(&mut self, name: Option<&str>, decoded: Option<&str>, special: bool) {
        let mut entry = Entry { present: name.is_some(), special, ..Entry::default() };
        if let Some(name) = name {
            self.pieces.push_str(name);
            let start = self.bytes.len();
            match self.rule.meaning(decoded.unwrap_or(name), false) {
                Meaning::Text(text) => self.bytes.extend(text),
                Meaning::Byte(byte) => {
                    self.bytes.push(byte);
                    entry.byte = true;
                }
            }
            self.longest_bytes = self.longest_bytes.max(self.bytes.len() - start);
        }
        entry.piece_end = self.pieces.len() as u32;
        entry.bytes_end = self.bytes.len() as u32;
        self.entries.push(entry);
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn rule(&self) -> &Rule {
        &self.rule
    }

    pub(crate) fn longest_bytes(&self) -> usize {
        self.longest_bytes
    }

    pub(crate) fn piece(&self, token: Token) -> Option<&str> {
        let entry = self.entries.get(token as usize).filter(|entry| entry.present)?;
        let start = self.before(token).piece_end;
        Some(&self.pieces[start as usize..entry.piece_end as usize])
    }

    pub(crate) fn bytes(&self, token: Token) -> &[u8] {
        match self.entries.get(token as usize) {
            Some(entry) => &self.bytes[self.before(token).bytes_end as usize..entry.bytes_end as usize],
            None => &[],
        }
    }

    pub(crate) fn is_special(&self, token: Token) -> bool {
        self.entries.get(token as usize).is_some_and(|entry| entry.special)
    }

    pub(crate) fn is_byte(&self, token: Token) -> bool {
        self.entries.get(token as usize).is_some_and(|entry| entry.byte)
    }

    fn before(&self, token: Token) -> Entry {
        (token as usize).checked_sub(1).map_or_else(Entry::default, |index| self.entries[index])
    }
}
