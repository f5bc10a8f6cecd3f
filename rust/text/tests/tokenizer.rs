//! Tokenizers and detokenizing on small vocabularies.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fixtures;

use std::collections::HashMap;
use std::sync::LazyLock;

use fixtures::{byte_level, gguf, sentence_piece, tokenizer, tokenizer_json, word_piece};
use octavo_gguf::{Array, Value};
use octavo_text::{Detokenizer, Error, Kind, Tokenizer};
use proptest::prelude::*;
use serde_json::json;

const NO_LIMIT: usize = usize::MAX;

const FAMILIES: &[&str] = &[
    "llama-bpe",
    "glm4",
    "deepseek-llm",
    "deepseek-coder",
    "deepseek-v3",
    "falcon",
    "smollm",
    "gpt-2",
    "qwen2",
    "qwen35",
    "gpt-4o",
    "tiny_aya",
    "tekken",
    "bloom",
    "viking",
    "bailingmoe",
    "seed-coder",
    "minicpm5",
    "kimi-k2",
    "default",
];

fn pieces(tokenizer: &Tokenizer, text: &str) -> Vec<String> {
    let tokens = tokenizer.encode(text, false, NO_LIMIT).unwrap();
    tokens.iter().map(|token| tokenizer.piece(*token).unwrap().to_owned()).collect()
}

fn streamed(tokenizer: &Tokenizer, tokens: &[u32], skip_special: bool) -> String {
    let mut detokenizer = Detokenizer::new(skip_special);
    let mut text = String::new();
    for token in tokens {
        text.push_str(detokenizer.push(tokenizer, *token));
    }
    text + detokenizer.finish(tokenizer)
}

#[test]
fn merges_within_words_and_recognises_special_tokens() {
    let tokenizer = tokenizer(&byte_level("gpt-2"));
    assert_eq!(pieces(&tokenizer, "hello world"), ["hello", "Ġwor", "l", "d"]);
    assert_eq!(
        pieces(&tokenizer, "<|im_start|>he<tool_call><|im_end|>"),
        ["<|im_start|>", "he", "<tool_call>", "<|im_end|>"]
    );
    let tokens = tokenizer.encode("<|im_start|>hello<tool_call>", false, NO_LIMIT).unwrap();
    assert_eq!(tokenizer.decode(&tokens, false), "<|im_start|>hello<tool_call>");
    assert_eq!(
        tokenizer.decode(&tokens, true),
        "hello<tool_call>",
        "a user-defined token is no special token"
    );
}

#[test]
fn families_split_digits_and_letters_as_they_should() {
    let digits = |family: &str| {
        let merges = vec!["Ġ 1".to_owned(), "1 2".to_owned(), "12 3".to_owned()];
        let mut vocabulary = fixtures::byte_level_vocabulary();
        for piece in ["12", "123", "Ġ1"] {
            vocabulary.add(piece, fixtures::NORMAL);
        }
        let writer = vocabulary
            .writer("gpt2")
            .string("tokenizer.ggml.pre", family)
            .value("tokenizer.ggml.merges", Value::Array(Array::String(merges)));
        pieces(&tokenizer(&writer), "x 1234")
    };
    assert_eq!(digits("gpt-2"), ["x", "Ġ1", "2", "3", "4"]);
    assert_eq!(digits("smollm"), ["x", "Ġ", "1", "2", "3", "4"]);
    assert_eq!(digits("llama-bpe"), ["x", "Ġ", "123", "4"]);
    assert_eq!(digits("qwen2"), ["x", "Ġ", "1", "2", "3", "4"]);
}

#[test]
fn adds_special_tokens_as_the_file_says() {
    let plain = tokenizer(&byte_level("gpt-2"));
    assert_eq!(plain.encode("he", true, NO_LIMIT).unwrap(), plain.encode("he", false, NO_LIMIT).unwrap());
    let llama3 = tokenizer(&byte_level("llama-bpe"));
    assert_eq!(llama3.encode("", true, NO_LIMIT).unwrap(), [1], "Llama 3 begins with BOS");
    let both = byte_level("gpt-2")
        .value("tokenizer.ggml.add_bos_token", Value::Bool(true))
        .value("tokenizer.ggml.add_eos_token", Value::Bool(true));
    assert_eq!(tokenizer(&both).encode("", true, NO_LIMIT).unwrap(), [1, 2]);
    assert_eq!((plain.bos(), plain.eos(), plain.pad()), (Some(1), Some(2), None));
}

#[test]
fn sentence_piece_marks_spaces_and_falls_back_to_bytes() {
    let tokenizer = tokenizer(&sentence_piece());
    assert_eq!(pieces(&tokenizer, "hello world"), ["▁hello", "▁w", "or", "ld"]);
    assert_eq!(pieces(&tokenizer, "é"), ["▁", "<0xC3>", "<0xA9>"]);
    assert_eq!(tokenizer.encode("hello", true, NO_LIMIT).unwrap()[0], 1);
    let tokens = tokenizer.encode("hello 漢字 world", true, NO_LIMIT).unwrap();
    assert_eq!(tokenizer.decode(&tokens, true), "hello 漢字 world");
    assert_eq!(tokenizer.token_bytes(tokenizer.token("▁hello").unwrap()), b" hello");
    assert_eq!(tokenizer.token_bytes(tokenizer.token("<0xC3>").unwrap()), [0xc3]);
    assert_eq!(tokenizer.token_text(tokenizer.token("<0xC3>").unwrap()), "\u{fffd}");
}

#[test]
fn the_space_before_a_continuation_stays() {
    let tokenizer = tokenizer(&sentence_piece());
    let hello = tokenizer.token("▁hello").unwrap();
    assert_eq!(tokenizer.decode(&[hello], true), "hello");
    assert_eq!(Detokenizer::after_text(true).push(&tokenizer, hello), " hello");
}

#[test]
fn word_piece_splits_words_and_joins_them() {
    let tokenizer = tokenizer(&word_piece());
    let tokens = tokenizer.encode("Hello  WORLDS, unable zzz!", true, NO_LIMIT).unwrap();
    let found: Vec<&str> = tokens.iter().map(|token| tokenizer.piece(*token).unwrap()).collect();
    assert_eq!(found, ["[CLS]", "hello", "world", "##s", ",", "un", "##able", "[UNK]", "!", "[SEP]"]);
    assert_eq!(tokenizer.decode(&tokens, true), "hello worlds, unable!");
}

#[test]
fn holds_half_characters_and_flushes_them_at_the_end() {
    let tokenizer = tokenizer(&byte_level("gpt-2"));
    let tokens = tokenizer.encode("a😀b", false, NO_LIMIT).unwrap();
    let mut detokenizer = Detokenizer::new(true);
    let deltas: Vec<String> =
        tokens.iter().map(|token| detokenizer.push(&tokenizer, *token).to_owned()).collect();
    assert_eq!(deltas, ["a", "", "", "", "😀", "b"]);
    assert_eq!(detokenizer.finish(&tokenizer), "");
    assert_eq!(streamed(&tokenizer, &tokens[..3], true), "a\u{fffd}");
}

#[test]
fn tokens_outside_the_vocabulary_add_nothing_and_break_nothing() {
    const UNKNOWN: u32 = 999_999;
    let bert = tokenizer(&word_piece());
    assert_eq!(streamed(&bert, &[UNKNOWN, bert.token("hello").unwrap()], true), "hello");
    let llama = tokenizer(&sentence_piece());
    let tokens = llama.encode("é", false, NO_LIMIT).unwrap();
    assert_eq!(streamed(&llama, &[tokens[0], tokens[1], UNKNOWN, tokens[2]], true), "é");
    assert_eq!(llama.token_bytes(UNKNOWN), b"");
    assert_eq!(llama.piece(UNKNOWN), None);
}

#[test]
fn refuses_text_that_cannot_fit_before_tokenizing_it() {
    let tokenizer = tokenizer(&byte_level("gpt-2"));
    let text = "x".repeat(100_000);
    let longest = "<|endoftext|>".len();
    let error = tokenizer.encode(&text, false, 100).unwrap_err();
    assert_eq!(error, Error::TooLong { tokens: 100_000 / longest, max_tokens: 100 });
    assert_eq!(error.kind(), Kind::Invalid);
    assert_eq!(tokenizer.encode("xyz", false, 2).unwrap_err(), Error::TooLong { tokens: 3, max_tokens: 2 });
    assert_eq!(tokenizer.encode("xyz", false, 3).unwrap().len(), 3);
}

#[test]
fn refuses_a_long_text_without_tokenizing_the_whole() {
    let tokenizer = tokenizer(&byte_level("gpt-2"));
    // Short enough for 100,000 of the longest tokens, but made of short ones.
    let text = "xé".repeat(430_000);
    let error = tokenizer.encode(&text, false, 100_000).unwrap_err();
    assert_eq!(error, Error::TooLong { tokens: 100_001, max_tokens: 100_000 });
    let text = "<|endoftext|>".repeat(100_000);
    assert_eq!(tokenizer.encode(&text, false, 100_000).unwrap().len(), 100_000);
}

#[test]
fn ignores_truncation_that_a_tokenizer_json_asks_for() {
    let tokenizer = Tokenizer::from_json(&tokenizer_json(&decoders()[0])).unwrap();
    assert_eq!(tokenizer.encode("abcdefgh", false, NO_LIMIT).unwrap().len(), 8);
}

#[test]
fn says_what_is_wrong_with_a_vocabulary() {
    let failure = |writer: &octavo_gguf::write::Writer| {
        let error = Tokenizer::from_gguf(&gguf(writer)).unwrap_err();
        assert_eq!(error.kind(), Kind::Model);
        error.to_string()
    };
    let empty = octavo_gguf::write::Writer::new();
    assert!(failure(&empty).contains("test.gguf: has no tokenizer: the metadata key tokenizer.ggml.model"));
    assert!(failure(&byte_level("newest")).contains("the pre-tokenizer \"newest\", which is not known"));
    assert!(
        failure(&empty.string("tokenizer.ggml.model", "gpt2")).contains("tokenizer.ggml.tokens is missing")
    );
    let rwkv = fixtures::byte_level_vocabulary().writer("rwkv");
    assert!(failure(&rwkv).contains("has the tokenizer model \"rwkv\""));
    let outside = byte_level("gpt-2").value("tokenizer.ggml.padding_token_id", Value::U32(70_000));
    assert!(failure(&outside).contains("padding_token_id is 70000, but the vocabulary has"));
    let json = Tokenizer::from_json(b"{\"model\": 1}").unwrap_err();
    assert!(json.to_string().contains("is not a tokenizer that can be read"), "{json}");
}

/// The decoders that models have, for comparison with the library's own decoding.
fn decoders() -> Vec<serde_json::Value> {
    let replace = json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "});
    vec![
        json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
        json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}),
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": true}),
        json!({"type": "Sequence", "decoders": [replace.clone(), {"type": "Fuse"}]}),
        json!({"type": "Sequence", "decoders": [
            replace, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]}),
        serde_json::Value::Null,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever the family, text comes back byte for byte.
    #[test]
    fn byte_level_text_comes_back(text in any::<String>(), spaces in "[ \n\t0-9a-z'.!é]{0,20}") {
        for family in FAMILIES {
            let tokenizer = &TOKENIZERS[family];
            for text in [&text, &spaces] {
                let tokens = tokenizer.encode(text, false, NO_LIMIT).unwrap();
                prop_assert_eq!(&tokenizer.decode(&tokens, false), text, "{}", family);
            }
        }
    }

}

proptest! {
    #[test]
    fn sentence_piece_text_comes_back(text in any::<String>().prop_filter("spelled as a space", |text| !text.contains('▁'))) {
        let tokenizer = &TOKENIZERS["sentencepiece"];
        let tokens = tokenizer.encode(&text, false, NO_LIMIT).unwrap();
        prop_assert_eq!(tokenizer.decode(&tokens, false), text);
    }

    /// Any tokens, whatever they spell: the pieces joined are the library's decoding of the whole.
    #[test]
    fn streaming_equals_decoding_at_once(tokens in prop::collection::vec(0_u32..266, 0..40), skip in any::<bool>()) {
        for (index, (tokenizer, oracle)) in ORACLES.iter().enumerate() {
            // Byte fallback spoils a run's good characters along with its bad bytes; a stream has sent them.
            let tokens: Vec<u32> =
                tokens.iter().copied().filter(|token| index != 5 || !(259..263).contains(token)).collect();
            let found = streamed(tokenizer, &tokens, skip);
            prop_assert_eq!(&found, &tokenizer.decode(&tokens, skip));
            prop_assert_eq!(found, oracle.decode(&tokens, skip).unwrap(), "{}", decoders()[index]);
        }
    }
}

/// Our tokenizer and the library's for each decoder.
static ORACLES: LazyLock<Vec<(Tokenizer, tokenizers::Tokenizer)>> = LazyLock::new(|| {
    let jsons = decoders().iter().map(tokenizer_json).collect::<Vec<_>>();
    let pair = |json: &Vec<u8>| {
        (Tokenizer::from_json(json).unwrap(), tokenizers::Tokenizer::from_bytes(json).unwrap())
    };
    jsons.iter().map(pair).collect()
});

/// The tokenizers of all families, built once.
static TOKENIZERS: LazyLock<HashMap<&'static str, Tokenizer>> = LazyLock::new(|| {
    let families = FAMILIES.iter().map(|family| (*family, tokenizer(&byte_level(family))));
    families.chain([("sentencepiece", tokenizer(&sentence_piece()))]).collect()
});

/// A damaged file gives a tokenizer or an error, and what it gives can be used.
#[test]
fn survives_damaged_vocabularies() {
    let files = [byte_level("gpt-2"), sentence_piece(), word_piece()].map(|writer| writer.to_bytes());
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let (mut good, mut bad) = (0, 0);
    for _ in 0..300 {
        for file in &files {
            let mut bytes = file.clone();
            for _ in 0..=random(8) {
                let at = random(bytes.len());
                bytes[at] = [b' ', b'<', 0, 1, 2, 3, b'a', 0x7f][random(8)];
            }
            let path = std::path::Path::new("damaged.gguf");
            let tokenizer = octavo_gguf::Gguf::read(bytes.as_slice(), bytes.len() as u64, path)
                .map_err(Error::from)
                .and_then(|gguf| Tokenizer::from_gguf(&gguf));
            let Ok(tokenizer) = tokenizer else {
                bad += 1;
                continue;
            };
            good += 1;
            if let Ok(tokens) = tokenizer.encode("hello wörld <0x41> unable <s>", true, NO_LIMIT) {
                assert_eq!(streamed(&tokenizer, &tokens, false), tokenizer.decode(&tokens, false));
            }
        }
    }
    assert!(good > 50 && bad > 50, "{good} accepted, {bad} refused: the damage proves little");
}
