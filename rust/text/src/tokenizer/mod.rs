//! The tokenizer: text to tokens, and what each token stands for.

mod bytes;
mod gguf;
mod merges;
mod pre;
mod rule;
mod table;

use std::path::Path;

use octavo_core::Token;
use tokenizers::Tokenizer as Inner;

use crate::detokenizer::Detokenizer;
use crate::error::{Error, Result};

pub(crate) use rule::Meaning;
pub(crate) use table::Table;

/// Bytes taken for one token at most where there is no limit (WordPiece's unknown word).
const UNBOUNDED_TOKEN_BYTES: usize = 4096;
/// Text with more bytes than this for each token allowed is counted before it is tokenized.
const USUAL_TOKEN_BYTES: usize = 4;
/// Bytes counted at once.
const SECTION_BYTES: usize = 64 * 1024;
/// Tokens that a cut between two sections may add.
const CUT_TOKENS: usize = 64;

/// Turns text into tokens and back. Shared by all requests; encoding takes `&self`.
#[derive(Debug)]
pub struct Tokenizer {
    inner: Inner,
    table: Table,
    roles: Roles,
    max_bytes_per_token: usize,
}

/// Tokens with a role. The first ones are set from a model's files; the last two
/// are put around a text where `inner` has no post-processor that does it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roles {
    pub(crate) bos: Option<Token>,
    pub(crate) eos: Option<Token>,
    pub(crate) pad: Option<Token>,
    pub(crate) unk: Option<Token>,
    pub(crate) prefix: Vec<Token>,
    pub(crate) suffix: Vec<Token>,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    pub fn from_file(path: &Path) -> Result<Self> {
        let json = std::fs::read(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::not_found(path, "there is no such file"),
            _ => Error::model(error.to_string()).at(path),
        })?;
        Self::from_json(&json).map_err(|error| error.at(path))
    }

    /// Reads the contents of a `tokenizer.json`.
    pub fn from_json(json: &[u8]) -> Result<Self> {
        let mut inner = Inner::from_bytes(json)
            .map_err(|error| Error::model(format!("is not a tokenizer that can be read: {error}")))?;
        // A file may ask for padding and truncation, which would change what a request says.
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|error| Error::model(error.to_string()))?;
        Self::new(inner, Roles::default())
    }

    /// Builds the tokenizer that a GGUF file's metadata describes.
    pub fn from_gguf(gguf: &octavo_gguf::Gguf) -> Result<Self> {
        let (inner, roles) = gguf::build(gguf).map_err(|error| error.at(gguf.path()))?;
        Self::new(inner, roles).map_err(|error| error.at(gguf.path()))
    }

    fn new(inner: Inner, roles: Roles) -> Result<Self> {
        let table = Table::new(&inner)?;
        let word_piece = matches!(inner.get_model(), tokenizers::ModelWrapper::WordPiece(_));
        // A normalizer may shorten text, by at most three bytes to one in the forms that exist.
        let shrink = if inner.get_normalizer().is_some() { 3 } else { 1 };
        let longest = if word_piece { UNBOUNDED_TOKEN_BYTES } else { table.longest_bytes() * shrink };
        Ok(Self { inner, table, roles, max_bytes_per_token: longest.max(1) })
    }

    /// The tokens of `text`, in which special tokens are recognised. With
    /// `add_special_tokens` the model's own ones are put around it.
    ///
    /// Fails with [`Error::TooLong`] if there are more than `max_tokens`; where the
    /// length of `text` shows it, that is before any work. Time and memory follow
    /// `max_tokens`, however long `text` is.
    pub fn encode(&self, text: &str, add_special_tokens: bool, max_tokens: usize) -> Result<Vec<Token>> {
        let check = |tokens: usize| {
            if tokens > max_tokens { Err(Error::TooLong { tokens, max_tokens }) } else { Ok(()) }
        };
        check(text.len() / self.max_bytes_per_token)?;
        if text.len() > max_tokens.saturating_mul(USUAL_TOKEN_BYTES).max(SECTION_BYTES) {
            self.count(text, max_tokens)?;
        }
        let encoding = self.encode_whole(text, add_special_tokens)?;
        let mut tokens = Vec::with_capacity(encoding.len() + 2);
        tokens.extend(self.roles.prefix.iter().filter(|_| add_special_tokens));
        tokens.extend(encoding.get_ids());
        tokens.extend(self.roles.suffix.iter().filter(|_| add_special_tokens));
        check(tokens.len())?;
        Ok(tokens)
    }

    fn encode_whole(&self, text: &str, add_special_tokens: bool) -> Result<tokenizers::Encoding> {
        self.inner
            .encode_fast(text, add_special_tokens)
            .map_err(|error| Error::Internal(format!("tokenizing failed: {error}")))
    }

    /// Fails as soon as `text` has beyond doubt more than `max_tokens`. Encoding
    /// takes hundreds of bytes a token, so that a long text is first looked at in
    /// sections; a cut may change tokens around it, hence the wide margin.
    fn count(&self, mut text: &str, max_tokens: usize) -> Result<()> {
        let (mut tokens, mut most) = (0, max_tokens.saturating_mul(2));
        while !text.is_empty() {
            let mut end = SECTION_BYTES.min(text.len());
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            let (section, rest) = text.split_at(end);
            tokens += self.encode_whole(section, false)?.len();
            most = most.saturating_add(CUT_TOKENS);
            if tokens > most {
                return Err(Error::TooLong { tokens: max_tokens + 1, max_tokens });
            }
            text = rest;
        }
        Ok(())
    }

    /// The text of `tokens`, the same that a [`Detokenizer`] gives piece by piece.
    pub fn decode(&self, tokens: &[Token], skip_special_tokens: bool) -> String {
        let mut detokenizer = Detokenizer::new(skip_special_tokens);
        let mut text = String::new();
        for token in tokens {
            text.push_str(detokenizer.push(self, *token));
        }
        text.push_str(detokenizer.finish(self));
        text
    }

    /// Size of the vocabulary: the largest token and one. A model's output layer may be larger.
    pub fn vocab_size(&self) -> usize {
        self.table.len()
    }

    /// What the vocabulary calls the token, such as `Ġhello`.
    pub fn piece(&self, token: Token) -> Option<&str> {
        self.table.piece(token)
    }

    /// The token with this name in the vocabulary.
    pub fn token(&self, piece: &str) -> Option<Token> {
        self.inner.token_to_id(piece)
    }

    /// The bytes that the token stands for within a text; empty for an unknown token.
    pub fn token_bytes(&self, token: Token) -> &[u8] {
        self.table.bytes(token)
    }

    /// The token's bytes as text; broken characters become U+FFFD.
    pub fn token_text(&self, token: Token) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.token_bytes(token))
    }

    /// True for tokens that `skip_special_tokens` leaves out.
    pub fn is_special(&self, token: Token) -> bool {
        self.table.is_special(token)
    }

    /// The beginning-of-sequence token.
    pub fn bos(&self) -> Option<Token> {
        self.roles.bos
    }

    /// The end-of-sequence token.
    pub fn eos(&self) -> Option<Token> {
        self.roles.eos
    }

    /// The padding token.
    pub fn pad(&self) -> Option<Token> {
        self.roles.pad
    }

    /// The unknown-text token.
    pub fn unk(&self) -> Option<Token> {
        self.roles.unk
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    pub(crate) fn roles_mut(&mut self) -> &mut Roles {
        &mut self.roles
    }
}
