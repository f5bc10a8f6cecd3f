//! Compares with reference data made by Hugging Face's own code.
//!
//! Needs models, so it is behind the feature `golden`. `OCTAVO_TEST_MODELS` names
//! the folder with the models, `OCTAVO_GOLDEN` the one with the records (default:
//! `tests/golden/data`). Each model has its own tests, so that a
//! machine with some of the models can run those: `cargo test ... -- smollm2`.
#![cfg(feature = "golden")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use octavo_gguf::Gguf;
use octavo_text::{ChatRequest, ChatTemplate, Clock, Detokenizer, Error, Overrides, TextModel, Tokenizer};
use serde_json::Value;

const NO_LIMIT: usize = usize::MAX;

fn models() -> PathBuf {
    let folder = std::env::var_os("OCTAVO_TEST_MODELS").expect(
        "set OCTAVO_TEST_MODELS to the folder that holds smollm2-135m-instruct-gguf and the other models",
    );
    PathBuf::from(folder)
}

fn records(file: &str) -> Vec<Value> {
    let folder = std::env::var_os("OCTAVO_GOLDEN").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/data"),
        PathBuf::from,
    );
    let path = folder.join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!("{}: {error}; set OCTAVO_GOLDEN to the folder with the golden records", path.display())
    });
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The records whose `field` has this value; there is at least one.
fn records_of(file: &str, field: &str, value: &str) -> Vec<Value> {
    let found: Vec<Value> = records(file).into_iter().filter(|record| record[field] == value).collect();
    assert!(!found.is_empty(), "{file} has no record with {field} {value}");
    found
}

/// The one file with this ending in the model's folder.
fn model_file(folder: &str, ending: &str) -> PathBuf {
    let folder = models().join(folder);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| {
        panic!("{}: {error}; fetch the model or leave this test out", folder.display())
    });
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.to_string_lossy().ends_with(ending));
    assert_eq!(files.len(), 1, "{} must have one file *{ending}", folder.display());
    files.remove(0)
}

fn gguf_tokenizer(path: PathBuf) -> Tokenizer {
    Tokenizer::from_gguf(&Gguf::open(path).unwrap()).unwrap()
}

fn ids(record: &Value, field: &str) -> Vec<u32> {
    serde_json::from_value(record[field].clone()).unwrap()
}

fn text(record: &Value, field: &str) -> String {
    record[field].as_str().unwrap_or_else(|| panic!("{} has no {field}", record["id"])).to_owned()
}

/// Collects what differs, so that one run shows it all.
#[derive(Default)]
struct Report {
    checked: usize,
    failures: Vec<String>,
}

impl Report {
    #[allow(clippy::needless_pass_by_value, reason = "shorter at every call")]
    fn check<T: PartialEq + std::fmt::Debug>(&mut self, record: &Value, what: &str, found: T, wanted: T) {
        self.checked += 1;
        if found != wanted {
            self.failures.push(format!("{} {what}\n   found {found:?}\n  wanted {wanted:?}", record["id"]));
        }
    }

    fn finish(self, name: &str) {
        let (failures, checked) = (self.failures.len(), self.checked);
        assert!(failures == 0, "{name}: {failures} of {checked} fail\n{}", self.failures.join("\n"));
    }
}

fn check_tokenization(tokenizer: &Tokenizer, name: &str) {
    let mut report = Report::default();
    for record in records_of("tokenization.jsonl", "tokenizer", name) {
        if record.get("json_text").is_some() {
            // A lone surrogate cannot be in a `str`; the door replaces it.
            let replaced = text(&record, "replaced_text");
            let found = tokenizer.encode(&replaced, false, NO_LIMIT).unwrap();
            report.check(&record, "ids_if_replaced", found, ids(&record, "ids_if_replaced"));
            continue;
        }
        let input = text(&record, "text");
        let plain = ids(&record, "ids");
        let special = ids(&record, "ids_with_special");
        report.check(&record, "ids", tokenizer.encode(&input, false, NO_LIMIT).unwrap(), plain.clone());
        report.check(&record, "ids_with_special", tokenizer.encode(&input, true, NO_LIMIT).unwrap(), special);
        report.check(&record, "decoded", tokenizer.decode(&plain, false), text(&record, "decoded"));
        let skipped = text(&record, "decoded_skip_special");
        report.check(&record, "decoded_skip_special", tokenizer.decode(&plain, true), skipped);
    }
    report.finish(&format!("tokenization of {name}"));
}

fn check_detokenization(tokenizer: &Tokenizer, name: &str) {
    let mut report = Report::default();
    for record in records_of("detokenization.jsonl", "tokenizer", name) {
        let tokens = ids(&record, "token_ids");
        let wanted = text(&record, "text");
        let mut detokenizer = Detokenizer::new(true);
        let (mut joined, mut reference) = (String::new(), String::new());
        for (token, delta) in tokens.iter().zip(record["deltas"].as_array().unwrap()) {
            joined.push_str(detokenizer.push(tokenizer, *token));
            reference.push_str(delta.as_str().unwrap());
            // Text may go out sooner than in the reference, never later, unless it ends in broken bytes.
            let late = !joined.starts_with(reference.trim_end_matches(char::REPLACEMENT_CHARACTER));
            report.check(&record, "is late", late, false);
            report.check(&record, "is a prefix", wanted.starts_with(&joined), true);
        }
        joined.push_str(detokenizer.finish(tokenizer));
        report.check(&record, "text", joined, wanted);
    }
    report.finish(&format!("detokenization of {name}"));
}

static SMOLLM2: LazyLock<Arc<Tokenizer>> =
    LazyLock::new(|| Arc::new(gguf_tokenizer(model_file("smollm2-135m-instruct-gguf", ".gguf"))));
static GEMMA3: LazyLock<Arc<Tokenizer>> =
    LazyLock::new(|| Arc::new(gguf_tokenizer(model_file("gemma-3-270m-gguf", ".gguf"))));
static QWEN: LazyLock<Arc<Tokenizer>> =
    LazyLock::new(|| Arc::new(gguf_tokenizer(model_file("qwen2.5-coder-0.5b-instruct-gguf", ".gguf"))));

#[test]
fn smollm2_tokenization() {
    check_tokenization(&SMOLLM2, "smollm2-135m-instruct");
}

#[test]
fn smollm2_detokenization() {
    check_detokenization(&SMOLLM2, "smollm2-135m-instruct");
}

#[test]
fn gemma3_tokenization() {
    check_tokenization(&GEMMA3, "gemma-3-270m");
}

#[test]
fn gemma3_detokenization() {
    check_detokenization(&GEMMA3, "gemma-3-270m");
}

#[test]
fn qwen_tokenization() {
    check_tokenization(&QWEN, "qwen2.5-coder-0.5b-instruct");
}

#[test]
fn qwen_detokenization() {
    check_detokenization(&QWEN, "qwen2.5-coder-0.5b-instruct");
}

#[test]
fn minilm_tokenization() {
    let tokenizer = Tokenizer::from_file(&model_file("all-MiniLM-L6-v2", "tokenizer.json")).unwrap();
    check_tokenization(&tokenizer, "all-MiniLM-L6-v2");
}

/// Checks one vocabulary file.
fn check_vocab(name: &str) {
    let file = format!("ggml-vocab-{name}.gguf");
    let tokenizer = gguf_tokenizer(models().join("llama-cpp-vocab").join(&file));
    let mut report = Report::default();
    for record in records_of("vocab_tokenization.jsonl", "vocab_file", &file) {
        let special = record["add_special_tokens"].as_bool().unwrap();
        let input = text(&record, "text");
        let found = tokenizer.encode(&input, special, NO_LIMIT).unwrap();
        report.check(&record, &format!("ids of {input:?}"), found, ids(&record, "ids"));
    }
    report.finish(&file);
}

macro_rules! vocab_tests {
    ($($test:ident $name:literal),* $(,)?) => {
        $(#[test] fn $test() { check_vocab($name); })*
    };
}

vocab_tests! {
    vocab_bert_bge "bert-bge",
    vocab_command_r "command-r",
    vocab_deepseek_coder "deepseek-coder",
    vocab_deepseek_llm "deepseek-llm",
    vocab_falcon "falcon",
    vocab_gemma_4 "gemma-4",
    vocab_gpt_2 "gpt-2",
    vocab_llama_bpe "llama-bpe",
    vocab_llama_spm "llama-spm",
    vocab_mpt "mpt",
    vocab_phi_3 "phi-3",
    vocab_qwen2 "qwen2",
    vocab_qwen35 "qwen35",
    vocab_refact "refact",
    vocab_starcoder "starcoder",
}

/// The sources of the templates in GGUF files and in files of their own.
fn template_source(record: &Value) -> String {
    if let Some(file) = record["template_file"].as_str() {
        let path = models().join(file);
        return std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let gguf = Gguf::open(model_file(&format!("{}-gguf", text(record, "template")), ".gguf")).unwrap();
    gguf.str("tokenizer.chat_template").unwrap().unwrap().to_owned()
}

fn compile(record: &Value) -> ChatTemplate {
    let specials = ["bos_token", "eos_token"]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), record[name].as_str()?.to_owned())))
        .collect();
    let now = record["now"].as_str().unwrap_or("2026-01-15T12:00:00").parse().unwrap();
    let clock: Clock = Arc::new(move || now);
    ChatTemplate::with_clock(&template_source(record), specials, clock)
        .unwrap_or_else(|error| panic!("{}: {error}", record["id"]))
}

fn check_templates(name: &str, wanted: impl Fn(&Value) -> bool) {
    let mut report = Report::default();
    for record in records("chat_templates.jsonl").iter().filter(|record| wanted(record)) {
        let request = ChatRequest {
            messages: record["messages"].as_array().unwrap(),
            tools: record["tools"].as_array().map(Vec::as_slice),
            documents: None,
            add_generation_prompt: record["add_generation_prompt"].as_bool().unwrap(),
            continue_final_message: false,
            kwargs: record["template_kwargs"].as_object(),
        };
        let found = compile(record).render(&request);
        match (record["rendered"].as_str(), record["raises"].as_str()) {
            (Some(rendered), _) => report.check(record, "rendered", found, Ok(rendered.to_owned())),
            (None, Some(raises)) => {
                // Other exceptions are Hugging Face's own limits: it is enough not to crash.
                if let Some(message) = raises.strip_prefix("TemplateError: ") {
                    report.check(record, "refusal", found, Err(Error::Refused(message.to_owned())));
                }
            }
            (None, None) => panic!("{} says neither what is rendered nor what is raised", record["id"]),
        }
    }
    assert!(report.checked > 0, "no record was checked");
    report.finish(name);
}

#[test]
fn smollm2_chat_template() {
    check_templates("chat template of smollm2", |record| record["template"] == "smollm2-135m-instruct");
}

#[test]
fn qwen_chat_template() {
    check_templates("chat template of qwen", |record| record["template"] == "qwen2.5-coder-0.5b-instruct");
}

#[test]
fn vocab_chat_templates() {
    check_templates("chat templates in files", |record| !record["template_file"].is_null());
}

#[test]
fn smollm2_model() {
    let path = model_file("smollm2-135m-instruct-gguf", ".gguf");
    let model = TextModel::open(&path, &Overrides::default()).unwrap();
    assert_eq!(model.context_len, Some(8192));
    assert_eq!(model.bos_token_id(), Some(1));
    assert_eq!(model.eos_token_ids, [0, 2]);
    let messages = [serde_json::json!({"role": "user", "content": "Hello there!"})];
    let request = ChatRequest { messages: &messages, add_generation_prompt: true, ..ChatRequest::default() };
    let rendered = model.chat_template.unwrap().render(&request).unwrap();
    assert!(
        rendered.ends_with("<|im_start|>user\nHello there!<|im_end|>\n<|im_start|>assistant\n"),
        "{rendered}"
    );
    let tokens = model.tokenizer.encode(&rendered, false, 100).unwrap();
    assert_eq!(model.tokenizer.decode(&tokens, false), rendered);
}
