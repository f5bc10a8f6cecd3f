//! How pieces of the vocabulary become text.

use serde_json::Value;

use super::bytes::byte_of;
use crate::error::{Error, Result};

/// The rule, read off a tokenizer's decoder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "steps of a decoder, each there or not")]
pub(crate) struct Rule {
    /// Characters spell bytes, as in GPT-2.
    pub(crate) byte_level: bool,
    /// Pieces such as `<0x0A>` are bytes.
    pub(crate) byte_fallback: bool,
    /// Replaced in every piece, in order.
    pub(crate) replacements: Vec<(String, String)>,
    /// One space is dropped from the start of the text.
    pub(crate) strip_start: bool,
    /// WordPiece: the prefix of pieces that go on with a word, and whether to tidy spaces.
    pub(crate) word_piece: Option<(String, bool)>,
    /// Pieces are words, joined by spaces.
    pub(crate) spaced: bool,
}

/// What one piece stands for.
pub(crate) enum Meaning {
    /// Bytes of text, perhaps half a character.
    Text(Vec<u8>),
    /// One byte of a run that is decoded together.
    Byte(u8),
}

impl Rule {
    /// Reads the serialized decoder of a tokenizer.
    pub(crate) fn from_decoder(decoder: &Value) -> Result<Self> {
        let mut rule = Self::default();
        if decoder.is_null() {
            rule.spaced = true;
        } else {
            rule.add(decoder)?;
        }
        Ok(rule)
    }

    fn add(&mut self, decoder: &Value) -> Result<()> {
        let unsupported = || Error::model(format!("has a decoder that is not supported: {decoder}"));
        match decoder["type"].as_str().ok_or_else(unsupported)? {
            "Sequence" => {
                for part in decoder["decoders"].as_array().ok_or_else(unsupported)? {
                    self.add(part)?;
                }
            }
            "ByteLevel" => self.byte_level = true,
            "ByteFallback" => self.byte_fallback = true,
            "Fuse" => {}
            "Replace" => {
                let from = decoder["pattern"]["String"].as_str().ok_or_else(unsupported)?;
                let to = decoder["content"].as_str().ok_or_else(unsupported)?;
                self.replacements.push((from.to_owned(), to.to_owned()));
            }
            "Strip" => {
                let (start, stop) = (decoder["start"].as_u64(), decoder["stop"].as_u64());
                if decoder["content"] != " " || start > Some(1) || stop != Some(0) {
                    return Err(unsupported());
                }
                self.strip_start = start == Some(1);
            }
            "Metaspace" => {
                let from = decoder["replacement"].as_str().ok_or_else(unsupported)?;
                self.replacements.push((from.to_owned(), " ".to_owned()));
                self.strip_start = decoder["prepend_scheme"] != "never";
            }
            "WordPiece" => {
                let prefix = decoder["prefix"].as_str().ok_or_else(unsupported)?;
                self.word_piece = Some((prefix.to_owned(), decoder["cleanup"] == true));
            }
            _ => return Err(unsupported()),
        }
        Ok(())
    }

    /// What `piece` stands for; `first` where it begins a text.
    pub(crate) fn meaning(&self, piece: &str, first: bool) -> Meaning {
        if let Some((prefix, tidy)) = &self.word_piece {
            let text = match piece.strip_prefix(prefix.as_str()) {
                _ if first => piece.to_owned(),
                Some(rest) => rest.to_owned(),
                None => format!(" {piece}"),
            };
            return Meaning::Text(if *tidy { tidied(&text) } else { text }.into_bytes());
        }
        if self.spaced {
            return Meaning::Text(if first { piece.to_owned() } else { format!(" {piece}") }.into_bytes());
        }
        let mut text = piece.to_owned();
        for (from, to) in &self.replacements {
            text = text.replace(from.as_str(), to);
        }
        if self.byte_fallback
            && let Some(byte) = fallback_byte(&text)
        {
            return Meaning::Byte(byte);
        }
        if self.byte_level
            && let Some(bytes) = text.chars().map(byte_of).collect::<Option<Vec<u8>>>()
        {
            return Meaning::Text(bytes);
        }
        Meaning::Text(text.into_bytes())
    }

    /// True where a piece's meaning depends on whether it is the first.
    pub(crate) fn first_differs(&self) -> bool {
        self.word_piece.is_some() || self.spaced
    }
}

fn fallback_byte(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// The spaces that WordPiece leaves before punctuation and English contractions, taken out.
fn tidied(text: &str) -> String {
    const RULES: [(&str, &str); 11] = [
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" do not", " don't"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ];
    RULES.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}
