//! Tokenizers from GGUF metadata.

use octavo_core::Token;
use octavo_gguf::{Array, Gguf};
use tokenizers::decoders::DecoderWrapper;
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as Decoders;
use tokenizers::decoders::strip::Strip;
use tokenizers::decoders::wordpiece::WordPiece as WordPieceDecoder;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::{BertNormalizer, NormalizerWrapper, Prepend, Replace, Sequence as Normalizers};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence as PreTokenizers;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, SplitDelimiterBehavior, Tokenizer as Inner};

use super::{Roles, merges, pre};
use crate::error::{Error, Result};

/// The kinds of token in `tokenizer.ggml.token_type`.
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;

/// SentencePiece's visible space.
const SPACE: &str = "▁";

/// The vocabulary of a file.
struct Source<'a> {
    gguf: &'a Gguf,
    pieces: &'a [String],
    kinds: Vec<i32>,
    pre: Option<&'a str>,
}

pub(super) fn build(gguf: &Gguf) -> Result<(Inner, Roles)> {
    let model = gguf
        .str("tokenizer.ggml.model")?
        .ok_or_else(|| Error::model("has no tokenizer: the metadata key tokenizer.ggml.model is missing"))?;
    let source = Source::new(gguf)?;
    let (mut inner, add_bos, add_eos) = match model {
        "gpt2" => source.byte_level()?,
        "llama" => source.sentence_piece()?,
        "gemma4" => source.gemma4()?,
        "bert" => source.word_piece()?,
        _ => {
            return Err(Error::model(format!(
                "has the tokenizer model {model:?}; gpt2, llama, gemma4 and bert can be read: \
                 give a folder with tokenizer.json as the tokenizer instead"
            )));
        }
    };
    inner.add_tokens(source.added()).map_err(|error| failed(&error))?;
    let roles = source.roles(add_bos, add_eos)?;
    Ok((inner, roles))
}

impl<'a> Source<'a> {
    fn new(gguf: &'a Gguf) -> Result<Self> {
        let pieces = gguf.strings("tokenizer.ggml.tokens")?.ok_or_else(|| {
            Error::model("has no vocabulary: the metadata key tokenizer.ggml.tokens is missing")
        })?;
        let kinds = match gguf.array("tokenizer.ggml.token_type")? {
            None => vec![1; pieces.len()],
            Some(Array::I32(kinds)) if kinds.len() == pieces.len() => kinds.clone(),
            Some(Array::U32(kinds)) if kinds.len() == pieces.len() => {
                kinds.iter().map(|kind| *kind as i32).collect()
            }
            Some(other) => {
                return Err(Error::model(format!(
                    "tokenizer.ggml.token_type must have {} 32-bit integers; it has {} elements",
                    pieces.len(),
                    other.len()
                )));
            }
        };
        Ok(Self { gguf, pieces, kinds, pre: gguf.str("tokenizer.ggml.pre")? })
    }

    fn vocab(&self) -> Vocab {
        self.pieces.iter().enumerate().map(|(token, piece)| (piece.clone(), token as Token)).collect()
    }

    fn listed_merges(&self) -> Result<&'a [String]> {
        self.gguf
            .strings("tokenizer.ggml.merges")?
            .ok_or_else(|| Error::model("has no merges: the metadata key tokenizer.ggml.merges is missing"))
    }

    /// GPT-2's kind: text is split into words, words into bytes, bytes are merged.
    fn byte_level(&self) -> Result<(Inner, bool, bool)> {
        let name = self.pre.unwrap_or("default");
        let family = pre::family(name).ok_or_else(|| {
            Error::model(format!(
                "has the pre-tokenizer {name:?}, which is not known: give a folder with tokenizer.json as the \
                 tokenizer instead"
            ))
        })?;
        let vocab = self.vocab();
        let merges = merges::listed(self.listed_merges()?, &vocab);
        let model = BPE::builder()
            .vocab_and_merges(vocab, merges)
            .ignore_merges(family.ignore_merges)
            .build()
            .map_err(|error| failed(&error))?;
        let mut steps = Vec::new();
        for pattern in family.splits {
            let split = Split::new(
                SplitPattern::Regex((*pattern).to_owned()),
                SplitDelimiterBehavior::Isolated,
                false,
            );
            steps.push(PreTokenizerWrapper::Split(split.map_err(|error| failed(&error))?));
        }
        steps.push(PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, false, false)));
        let mut inner = Inner::new(model);
        inner.with_pre_tokenizer(Some(PreTokenizers::new(steps)));
        inner.with_decoder(Some(ByteLevel::default()));
        Ok((inner, family.add_bos, false))
    }

    /// Llama 2's and Gemma's kind: merges follow from scores, unknown text falls back to bytes.
    fn sentence_piece(&self) -> Result<(Inner, bool, bool)> {
        let scores = self
            .gguf
            .floats("tokenizer.ggml.scores")?
            .filter(|scores| scores.len() == self.pieces.len())
            .ok_or_else(|| Error::model("tokenizer.ggml.scores must have one float for each token"))?;
        let vocab = self.vocab();
        let merges = merges::from_scores(self.pieces, scores, &vocab);
        let prefix = self.gguf.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
        Ok((self.visible_spaces(vocab, merges, prefix)?, true, false))
    }

    /// Gemma 4's kind: as SentencePiece, with listed merges.
    fn gemma4(&self) -> Result<(Inner, bool, bool)> {
        let vocab = self.vocab();
        let merges = merges::listed(self.listed_merges()?, &vocab);
        Ok((self.visible_spaces(vocab, merges, false)?, true, false))
    }

    fn visible_spaces(
        &self,
        vocab: Vocab,
        merges: tokenizers::models::bpe::Merges,
        prefix: bool,
    ) -> Result<Inner> {
        let mut model = BPE::builder().vocab_and_merges(vocab, merges).byte_fallback(true).fuse_unk(true);
        if let Some(unk) = self.kinds.iter().position(|kind| *kind == UNKNOWN).or(self.role("unknown")?) {
            model = model.unk_token(self.pieces[unk].clone());
        }
        let mut inner = Inner::new(model.build().map_err(|error| failed(&error))?);
        let mut normalizers: Vec<NormalizerWrapper> = Vec::new();
        let mut decoders: Vec<DecoderWrapper> = Vec::new();
        if prefix {
            normalizers.push(Prepend::new(SPACE.to_owned()).into());
        }
        normalizers.push(Replace::new(" ", SPACE).map_err(|error| failed(&error))?.into());
        decoders.push(Replace::new(SPACE, " ").map_err(|error| failed(&error))?.into());
        decoders.push(ByteFallback::new().into());
        decoders.push(Fuse::new().into());
        if prefix {
            decoders.push(Strip::new(' ', 1, 0).into());
        }
        inner.with_normalizer(Some(Normalizers::new(normalizers))).map_err(|error| failed(&error))?;
        inner.with_decoder(Some(Decoders::new(decoders)));
        Ok(inner)
    }

    /// BERT's kind. The file marks the start of a word where BERT marks its continuation.
    fn word_piece(&self) -> Result<(Inner, bool, bool)> {
        let vocab: Vocab = self
            .pieces
            .iter()
            .enumerate()
            .map(|(token, piece)| (self.word_piece_name(token, piece), token as Token))
            .collect();
        let unk =
            self.role("unknown")?.map_or_else(|| "[UNK]".to_owned(), |token| self.pieces[token].clone());
        let model =
            WordPiece::builder().vocab(vocab).unk_token(unk).build().map_err(|error| failed(&error))?;
        let lowercase = self.gguf.bool("tokenizer.ggml.normalizer.lowercase")?.unwrap_or(true);
        let strip_accents = self.gguf.bool("tokenizer.ggml.normalizer.strip_accents")?;
        let mut inner = Inner::new(model);
        let normalizer = BertNormalizer::new(true, true, strip_accents, lowercase);
        inner.with_normalizer(Some(normalizer)).map_err(|error| failed(&error))?;
        inner.with_pre_tokenizer(Some(BertPreTokenizer));
        inner.with_decoder(Some(WordPieceDecoder::default()));
        Ok((inner, true, true))
    }

    fn word_piece_name(&self, token: usize, piece: &str) -> String {
        let bracketed = piece.starts_with('[') && piece.ends_with(']');
        match piece.strip_prefix(SPACE) {
            Some(word) => word.to_owned(),
            None if bracketed || self.kinds[token] == CONTROL => piece.to_owned(),
            None => format!("##{piece}"),
        }
    }

    /// Tokens that are recognised in text as they stand.
    fn added(&self) -> Vec<AddedToken> {
        let special = |kind: i32| kind == CONTROL || kind == UNKNOWN;
        // Phi-3's turn markers swallow the spaces after them.
        let phi3 = self.gguf.str("general.architecture").ok().flatten() == Some("phi3")
            && self.gguf.str("tokenizer.ggml.model").ok().flatten() == Some("llama");
        let plain = ["<unk>", "<s>", "<|endoftext|>"];
        self.pieces
            .iter()
            .zip(&self.kinds)
            .filter(|(piece, kind)| !piece.is_empty() && (special(**kind) || **kind == USER_DEFINED))
            .map(|(piece, kind)| {
                AddedToken::from(piece.clone(), special(*kind))
                    .normalized(false)
                    .rstrip(phi3 && !plain.contains(&piece.as_str()))
            })
            .collect()
    }

    /// The token that `tokenizer.ggml.{role}_token_id` names.
    fn role(&self, role: &str) -> Result<Option<usize>> {
        let key = format!("tokenizer.ggml.{role}_token_id");
        let Some(token) = self.gguf.u32(&key)? else { return Ok(None) };
        if (token as usize) < self.pieces.len() {
            return Ok(Some(token as usize));
        }
        let message = format!("{key} is {token}, but the vocabulary has {} tokens", self.pieces.len());
        Err(Error::model(message))
    }

    fn roles(&self, add_bos: bool, add_eos: bool) -> Result<Roles> {
        let token = |role: &str| Ok::<_, Error>(self.role(role)?.map(|token| token as Token));
        let (bos, eos, pad, unk) = (token("bos")?, token("eos")?, token("padding")?, token("unknown")?);
        // GGUF spells it so; newer files may not.
        let separator = token("seperator")?.or(token("separator")?);
        let bos = bos.or(token("cls")?);
        let flag = |key: &str, default: bool| Ok::<_, Error>(self.gguf.bool(key)?.unwrap_or(default));
        let prefix = bos.filter(|_| matches!(flag("tokenizer.ggml.add_bos_token", add_bos), Ok(true)));
        let suffix =
            eos.or(separator).filter(|_| matches!(flag("tokenizer.ggml.add_eos_token", add_eos), Ok(true)));
        Ok(Roles {
            bos,
            eos,
            pad,
            unk,
            prefix: prefix.into_iter().collect(),
            suffix: suffix.into_iter().collect(),
        })
    }
}

fn failed(error: &impl std::fmt::Display) -> Error {
    Error::model(format!("the tokenizer cannot be built: {error}"))
}
