//! Opening the text side of models on disk.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fixtures;

use std::path::Path;

use octavo_gguf::Value as GgufValue;
use octavo_text::{ChatRequest, Kind, Overrides, SamplingDefaults, TextModel};
use serde_json::{Value, json};

fn write(folder: &Path, name: &str, value: &Value) {
    std::fs::write(folder.join(name), serde_json::to_vec(value).unwrap()).unwrap();
}

/// A folder as models have it on the hub.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let decoder =
        json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
    std::fs::write(at.join("tokenizer.json"), fixtures::tokenizer_json(&decoder)).unwrap();
    write(at, "config.json", &json!({"max_position_embeddings": 2048, "eos_token_id": 7}));
    write(
        at,
        "generation_config.json",
        &json!({"eos_token_id": [9, 7], "temperature": 0.5, "top_k": 20, "do_sample": true}),
    );
    write(
        at,
        "tokenizer_config.json",
        &json!({"eos_token": {"content": "<|end|>"}, "bos_token": null, "pad_token": "!",
                "chat_template": "{{ eos_token }}|{{ bos_token }}|{{ messages[0].content }}"}),
    );
    write(at, "special_tokens_map.json", &json!({"bos_token": "<|end|>", "unk_token": "\""}));
    folder
}

fn open(path: &Path) -> octavo_text::Result<TextModel> {
    TextModel::open(path, &Overrides::default())
}

fn chat(model: &TextModel) -> String {
    let messages = [json!({"role": "user", "content": "Hi"})];
    let request = ChatRequest { messages: &messages, ..ChatRequest::default() };
    model.chat_template.as_ref().unwrap().render(&request).unwrap()
}

#[test]
fn reads_a_folder() {
    let folder = folder();
    let model = open(folder.path()).unwrap();
    let end = model.tokenizer.token("<|end|>").unwrap();
    assert_eq!(model.context_len, Some(2048));
    assert_eq!(model.eos_token_ids, [7, 9, end]);
    assert_eq!(model.bos_token_id(), None, "tokenizer_config.json takes the map's token away");
    assert_eq!(model.tokenizer.pad(), model.tokenizer.token("!"));
    assert_eq!(model.tokenizer.unk(), model.tokenizer.token("\""));
    let sampling =
        SamplingDefaults { temperature: Some(0.5), top_k: Some(20), ..SamplingDefaults::default() };
    assert_eq!(model.sampling, sampling);
    assert_eq!(chat(&model), "<|end|>||Hi");
}

#[test]
fn finds_chat_templates_where_they_may_be() {
    let folder = folder();
    let at = folder.path();
    let named = json!([{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]);
    write(at, "tokenizer_config.json", &json!({"chat_template": named}));
    let model = open(at).unwrap();
    assert_eq!(chat(&model), "plain");
    let request = ChatRequest { tools: Some(&[Value::Null]), ..ChatRequest::default() };
    assert_eq!(model.chat_template.unwrap().render(&request).unwrap(), "tools");
    std::fs::write(at.join("chat_template.jinja"), "from the file").unwrap();
    assert_eq!(chat(&open(at).unwrap()), "from the file");
    let given = |text: &str| Overrides { chat_template: Some(text.to_owned()), ..Overrides::default() };
    assert_eq!(chat(&TextModel::open(at, &given("{{ 'inline' }}")).unwrap()), "inline");
    let path = at.join("chat_template.jinja");
    assert_eq!(chat(&TextModel::open(at, &given(path.to_str().unwrap())).unwrap()), "from the file");
    let missing = TextModel::open(at, &given("no/such.jinja")).unwrap_err();
    assert_eq!(missing.to_string(), "no/such.jinja: there is no such chat template file");
    write(at, "tokenizer_config.json", &json!({}));
    std::fs::remove_file(path).unwrap();
    assert!(open(at).unwrap().chat_template.is_none());
}

#[test]
fn reads_a_gguf_file_and_takes_another_tokenizer() {
    let folder = folder();
    let path = folder.path().join("model.gguf");
    let writer = fixtures::byte_level("gpt-2")
        .value("llama.context_length", GgufValue::U32(512))
        .string("tokenizer.chat_template", "{{ bos_token }}{{ eos_token }}");
    std::fs::write(&path, writer.to_bytes()).unwrap();
    let model = open(&path).unwrap();
    assert_eq!((model.context_len, model.bos_token_id()), (Some(512), Some(1)));
    assert_eq!(model.eos_token_ids, [0, 2]);
    assert_eq!(chat(&model), "<|im_start|><|im_end|>");
    for tokenizer in [folder.path().to_owned(), folder.path().join("tokenizer.json")] {
        let overrides = Overrides { tokenizer: Some(tokenizer), ..Overrides::default() };
        let model = TextModel::open(&path, &overrides).unwrap();
        assert_eq!(model.context_len, Some(512));
        assert_eq!(chat(&model), "<|end|>||Hi");
    }
}

#[test]
fn finds_the_turns_end_where_a_gguf_file_does_not_name_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.GGUF");
    // A base model's EOS with a chat model's turns.
    let writer = fixtures::byte_level_vocabulary()
        .writer("gpt2")
        .string("tokenizer.ggml.pre", "gpt-2")
        .value("tokenizer.ggml.merges", GgufValue::Array(octavo_gguf::Array::String(Vec::new())))
        .value("tokenizer.ggml.eos_token_id", GgufValue::U32(0));
    std::fs::write(&path, writer.to_bytes()).unwrap();
    assert_eq!(open(&path).unwrap().eos_token_ids, [0, 2]);
    let named = writer.value("tokenizer.ggml.eot_token_id", GgufValue::U32(1));
    std::fs::write(&path, named.to_bytes()).unwrap();
    assert_eq!(open(&path).unwrap().eos_token_ids, [0, 1]);
}

#[test]
fn says_which_file_is_missing_or_wrong() {
    let folder = folder();
    let at = folder.path();
    let failure = |path: &Path| {
        let error = open(path).unwrap_err();
        (error.kind(), error.to_string())
    };
    let (kind, message) = failure(&at.join("nowhere"));
    assert_eq!(kind, Kind::NotFound);
    assert!(message.contains("nowhere: there is no such file or folder"), "{message}");
    let (_, message) = failure(&at.join("config.json"));
    assert!(message.contains("is not a model"), "{message}");
    std::fs::write(at.join("config.json"), "{").unwrap();
    let (kind, message) = failure(at);
    assert_eq!(kind, Kind::Model);
    assert!(message.contains("config.json: is not valid JSON"), "{message}");
    std::fs::remove_file(at.join("config.json")).unwrap();
    assert!(failure(at).1.contains("config.json: there is no such file; a model folder has"));
    write(at, "config.json", &json!({}));
    std::fs::remove_file(at.join("tokenizer.json")).unwrap();
    assert!(failure(at).1.contains("tokenizer.json: there is no such file; name a folder"));
    std::fs::write(at.join("tokenizer.model"), "").unwrap();
    assert!(failure(at).1.contains("there is no such file, only tokenizer.model"));
    std::fs::write(at.join("broken.gguf"), "GGUF").unwrap();
    assert!(failure(&at.join("broken.gguf")).1.contains("broken.gguf, byte 4: the version needs 4 bytes"));
}
