//! `POST /v1/chat/completions` over a real socket.

use serde_json::{Value, json};

use crate::harness::{Server, Setup};

fn hello(more: &Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 6, "ignore_eos": true,
                          "seed": 1});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

async fn chat(server: &Server, body: &Value) -> Value {
    let reply = server.post("/v1/chat/completions", body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

/// The prompt that the template makes of `body`.
async fn prompt_text(server: &Server, more: Value) -> String {
    let mut body = hello(&more);
    body["return_prompt_text"] = json!(true);
    chat(server, &body).await["prompt_text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn answers_with_the_documented_shape() {
    let server = Setup::default().start();
    let reply = chat(&server, &hello(&json!({}))).await;
    assert_eq!(reply["object"], "chat.completion");
    assert!(reply["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!(reply["model"], "tiny");
    let choice = &reply["choices"][0];
    assert_eq!(choice["finish_reason"], "length");
    let message = choice["message"].as_object().unwrap();
    assert_eq!(message["role"], "assistant");
    assert!(message["content"].is_string());
    assert_eq!(message["tool_calls"], json!([]));
    for field in ["refusal", "annotations", "audio", "function_call", "reasoning"] {
        assert_eq!(message[field], Value::Null, "{field}");
    }
    assert_eq!(reply["usage"]["completion_tokens"], 6);
}

#[tokio::test]
async fn a_stream_starts_with_the_role_and_ends_with_the_usage() {
    let server = Setup::default().start();
    let whole = chat(&server, &hello(&json!({}))).await;
    let body =
        hello(&json!({"stream": true, "stream_options": {"include_usage": true}, "return_token_ids": true}));
    let events = server.post("/v1/chat/completions", &body).await.events();
    let first = &events[0];
    assert_eq!(first["object"], "chat.completion.chunk");
    assert_eq!(first["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert_eq!(first["choices"][0]["finish_reason"], Value::Null);
    assert!(first["prompt_token_ids"].as_array().unwrap().len() > 5);
    let (usage, chunks) = events.split_last().unwrap();
    let mut deltas = chunks[1..].iter().map(|chunk| &chunk["choices"][0]);
    let text: String = deltas.clone().filter_map(|choice| choice["delta"]["content"].as_str()).collect();
    assert_eq!(text, whole["choices"][0]["message"]["content"].as_str().unwrap());
    let tokens: usize = deltas.clone().map(|choice| choice["token_ids"].as_array().unwrap().len()).sum();
    assert_eq!(tokens, 6);
    assert_eq!(deltas.next_back().unwrap()["finish_reason"], "length");
    assert!(
        chunks.iter().all(|chunk| chunk["choices"][0].get("logprobs").is_none()),
        "unset fields are left out"
    );
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["total_tokens"], whole["usage"]["total_tokens"]);
    assert!(usage["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn every_choice_of_a_stream_has_a_role_and_an_end() {
    let server = Setup::default().start();
    let events = server.post("/v1/chat/completions", &hello(&json!({"n": 3, "stream": true}))).await.events();
    for index in 0..3 {
        let of_choice: Vec<&Value> = events
            .iter()
            .map(|event| &event["choices"][0])
            .filter(|choice| choice["index"] == index)
            .collect();
        assert_eq!(of_choice[0]["delta"]["role"], "assistant");
        assert_eq!(of_choice.last().unwrap()["finish_reason"], "length");
    }
    assert!(events.last().unwrap()["system_fingerprint"].is_string());
}

#[tokio::test]
async fn log_probabilities_name_tokens_with_their_bytes() {
    let server = Setup::default().start();
    let reply = chat(&server, &hello(&json!({"logprobs": true, "top_logprobs": 2}))).await;
    let rows = reply["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(rows.len(), 6);
    for row in rows {
        assert!(row["logprob"].is_number());
        assert_eq!(row["top_logprobs"].as_array().unwrap().len(), 2);
        let bytes: Vec<u8> = serde_json::from_value(row["bytes"].clone()).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), row["token"].as_str().unwrap());
    }
    let reply = chat(&server, &hello(&json!({"logprobs": true, "return_tokens_as_token_ids": true}))).await;
    let row = &reply["choices"][0]["logprobs"]["content"][0];
    assert!(row["token"].as_str().unwrap().starts_with("token_id:"));
    assert_eq!(row["top_logprobs"], json!([]));
}

#[tokio::test]
async fn content_may_be_parts() {
    let server = Setup::default().start();
    let parts = json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]});
    assert_eq!(prompt_text(&server, parts).await, prompt_text(&server, json!({})).await);
}

#[tokio::test]
async fn the_template_gets_what_the_request_says() {
    let mut setup = Setup::default();
    setup.server.default_chat_template_kwargs.insert("style".to_owned(), json!("dry"));
    let server = setup.start();
    let start = "<|start|>user\nHello<|end|>\n";
    assert_eq!(prompt_text(&server, json!({})).await, format!("{start}style:dry\n<|start|>assistant\n"));
    let kwargs = json!({"chat_template_kwargs": {"style": "warm"}, "add_generation_prompt": false});
    assert_eq!(prompt_text(&server, kwargs).await, format!("{start}style:warm\n"));
    let tools = json!({"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none"});
    assert!(prompt_text(&server, tools).await.contains("tools:1\n"));
}

#[tokio::test]
async fn the_last_message_may_be_continued_and_echoed() {
    let server = Setup::default().start();
    let messages = json!([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Sure"}]);
    let body = json!({"messages": messages, "continue_final_message": true, "echo": true});
    assert!(prompt_text(&server, body.clone()).await.ends_with("<|start|>assistant\nSure"));
    let reply = chat(&server, &hello(&body)).await;
    let content = reply["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    assert!(content.starts_with("Sure"), "{content}");
    let mut body = hello(&body);
    body["stream"] = json!(true);
    let events = server.post("/v1/chat/completions", &body).await.events();
    let text: String =
        events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, content);
}

#[tokio::test]
async fn prompt_log_probabilities_come_beside_the_choices() {
    let server = Setup::default().start();
    let reply = chat(&server, &hello(&json!({"prompt_logprobs": 0, "return_token_ids": true}))).await;
    let rows = reply["prompt_logprobs"].as_array().unwrap().len();
    assert_eq!(rows, reply["prompt_token_ids"].as_array().unwrap().len());
}

#[tokio::test]
async fn a_request_may_bring_a_template_only_where_that_is_trusted() {
    let template = json!({"chat_template": "{{ messages[0].content }}!"});
    let server = Setup::default().start();
    let reply = server.post("/v1/chat/completions", &hello(&template)).await;
    assert_eq!((reply.status, &reply.error()["param"]), (400, &json!("chat_template")));
    let mut setup = Setup::default();
    setup.server.trust_request_chat_template = true;
    let server = setup.start();
    assert_eq!(prompt_text(&server, template).await, "Hello!");
}

#[tokio::test]
async fn a_model_without_a_template_says_so() {
    let server = Setup { template: None, ..Setup::default() }.start();
    let reply = server.post("/v1/chat/completions", &hello(&json!({}))).await;
    assert_eq!(reply.status, 400);
    assert!(reply.error()["message"].as_str().unwrap().contains("chat template"));
}
