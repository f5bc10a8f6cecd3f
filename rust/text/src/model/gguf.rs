//! A GGUF file.

use std::collections::BTreeMap;

use octavo_core::Token;
use octavo_gguf::Gguf;

use super::{Facts, SamplingDefaults, Vocabulary};
use crate::error::Result;
use crate::tokenizer::Tokenizer;

/// Tokens that end a turn or a text, for files that do not say which does.
const ENDS: [&str; 6] = ["<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<turn|>", "<|end|>", "<|endoftext|>"];
/// Where this token exists, `<|end|>` ends a message but not the output.
const HARMONY_RETURN: &str = "<|return|>";

/// What the metadata say about context and sampling.
pub(super) fn facts(gguf: &Gguf) -> Result<Facts> {
    let architecture = gguf.str("general.architecture")?.unwrap_or_default();
    let context = gguf.u64(&format!("{architecture}.context_length"))?;
    let float = |name: &str| gguf.f32(&format!("general.sampling.{name}"));
    Ok(Facts {
        eos_token_ids: Vec::new(),
        sampling: SamplingDefaults {
            temperature: float("temp")?,
            top_p: float("top_p")?,
            top_k: gguf.u32("general.sampling.top_k")?,
            min_p: float("min_p")?,
            repetition_penalty: float("penalty_repeat")?,
            max_new_tokens: None,
        },
        context_len: context.and_then(|number| usize::try_from(number).ok()),
    })
}

/// The tokenizer and chat templates of a file.
pub(super) fn vocabulary(gguf: &Gguf) -> Result<Vocabulary> {
    let tokenizer = Tokenizer::from_gguf(gguf)?;
    let roles = [
        ("bos_token", tokenizer.bos()),
        ("eos_token", tokenizer.eos()),
        ("pad_token", tokenizer.pad()),
        ("unk_token", tokenizer.unk()),
    ];
    let specials: BTreeMap<String, String> = roles
        .into_iter()
        .filter_map(|(name, token)| Some((name.to_owned(), tokenizer.piece(token?)?.to_owned())))
        .collect();
    Ok(Vocabulary {
        specials,
        template: gguf.str("tokenizer.chat_template")?.map(str::to_owned),
        tool_use_template: gguf.str("tokenizer.chat_template.tool_use")?.map(str::to_owned),
        eos_token_ids: eos_token_ids(gguf, &tokenizer)?,
        tokenizer,
    })
}

fn eos_token_ids(gguf: &Gguf, tokenizer: &Tokenizer) -> Result<Vec<Token>> {
    let mut ids: Vec<Token> = tokenizer.eos().into_iter().collect();
    let named = ["tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"];
    for key in named {
        ids.extend(gguf.u32(key)?.filter(|token| (*token as usize) < tokenizer.vocab_size()));
    }
    if gguf.metadata(named[0]).is_none() {
        let harmony = tokenizer.token(HARMONY_RETURN).is_some();
        let ends = ENDS.iter().filter(|piece| !(harmony && **piece == "<|end|>"));
        ids.extend(
            ends.filter_map(|piece| tokenizer.token(piece)).filter(|token| tokenizer.is_special(*token)),
        );
    }
    Ok(ids)
}
