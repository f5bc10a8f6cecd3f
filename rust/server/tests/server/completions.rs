//! `POST /v1/completions` over a real socket.

use crate::harness::{self, Setup};
use serde_json::{Value, json};

/// The text of choice `index` put together from a stream's chunks.
fn streamed(events: &[Value], index: u64) -> String {
    let choices = events.iter().flat_map(|event| event["choices"].as_array().unwrap());
    choices.filter(|choice| choice["index"] == index).map(|choice| choice["text"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn answers_with_the_documented_shape() {
    let server = Setup::default().start();
    let body = json!({"model": "other", "prompt": "Hello", "max_tokens": 5, "ignore_eos": true, "seed": 1});
    let reply = server.complete(&body).await;
    assert_eq!(reply["object"], "text_completion");
    assert_eq!(reply["model"], "other");
    assert!(reply["id"].as_str().unwrap().starts_with("cmpl-"));
    assert!(reply["system_fingerprint"].as_str().unwrap().starts_with("octavo-1.2.3-"));
    let choice = &reply["choices"][0];
    assert_eq!(choice["index"], 0);
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(choice["stop_reason"], Value::Null);
    assert_eq!(choice["logprobs"], Value::Null);
    assert_eq!(
        reply["usage"],
        json!({"prompt_tokens": 5, "total_tokens": 10, "completion_tokens": 5,
               "prompt_tokens_details": {"cached_tokens": 0}})
    );
}

#[tokio::test]
async fn a_stream_joins_to_the_whole_reply() {
    let server = Setup::default().start();
    let mut body = json!({"prompt": "Once", "max_tokens": 40, "ignore_eos": true, "seed": 3});
    let whole = server.complete(&body).await;
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let reply = server.post("/v1/completions", &body).await;
    assert_eq!(reply.header("content-type"), Some("text/event-stream; charset=utf-8"));
    let events = reply.events();
    assert_eq!(streamed(&events, 0), whole["choices"][0]["text"].as_str().unwrap());
    let (usage, chunks) = events.split_last().unwrap();
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["completion_tokens"], 40);
    assert!(usage["system_fingerprint"].is_string());
    let last = chunks.last().unwrap();
    assert_eq!(last["choices"][0]["finish_reason"], "length");
    assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none() && chunk["id"] == last["id"]));
}

#[tokio::test]
async fn running_usage_grows_with_the_chunks() {
    let server = Setup::default().start();
    let body = json!({"prompt": "Once", "max_tokens": 9, "ignore_eos": true, "stream": true,
                      "stream_options": {"include_usage": true, "continuous_usage_stats": true}});
    let events = server.post("/v1/completions", &body).await.events();
    let counts: Vec<u64> = events.iter().map(|e| e["usage"]["completion_tokens"].as_u64().unwrap()).collect();
    assert!(counts.is_sorted(), "{counts:?}");
    assert_eq!(counts.last(), Some(&9));
}

#[tokio::test]
async fn several_prompts_and_choices_are_numbered_by_prompt() {
    let server = Setup::default().start();
    let body = json!({"prompt": ["One", "Two"], "n": 2, "max_tokens": 6, "ignore_eos": true, "seed": 5});
    let reply = server.complete(&body).await;
    let texts: Vec<&str> =
        reply["choices"].as_array().unwrap().iter().map(|choice| choice["text"].as_str().unwrap()).collect();
    assert_eq!(texts.len(), 4);
    assert_eq!(reply["usage"]["prompt_tokens"], 6);
    assert_eq!(reply["usage"]["completion_tokens"], 24);
    for (prompt, index) in [("One", 0), ("Two", 2)] {
        let body = json!({"prompt": prompt, "max_tokens": 6, "ignore_eos": true, "seed": 5});
        let alone = server.complete(&body).await;
        assert_eq!(alone["choices"][0]["text"], texts[index], "choice 0 has the request's own seed");
    }
    assert_ne!(texts[0], texts[1], "choices of a prompt differ");
}

#[tokio::test]
async fn every_form_of_prompt_is_taken() {
    let server = Setup::default().start();
    let tokens = server.post("/tokenize", &json!({"prompt": "abc"})).await.json()["tokens"].clone();
    let text = |prompt: Value| {
        let server = &server;
        async move {
            let body = json!({"prompt": prompt, "max_tokens": 8, "ignore_eos": true, "seed": 2});
            server.complete(&body).await["choices"][0]["text"].clone()
        }
    };
    let expected = text(json!("abc")).await;
    for prompt in [json!(["abc"]), tokens.clone(), json!([tokens])] {
        assert_eq!(text(prompt).await, expected);
    }
}

#[tokio::test]
async fn a_stop_string_ends_the_text_and_frees_the_request() {
    let server = Setup::default().start();
    let body = json!({"prompt": "Story", "max_tokens": 200, "ignore_eos": true, "seed": 4,
                      "skip_special_tokens": false});
    let text = server.complete(&body).await["choices"][0]["text"].as_str().unwrap().to_owned();
    let stop: String = text.chars().skip(20).take(3).collect();
    let at = text.find(&stop).unwrap();
    for stream in [false, true] {
        for include in [false, true] {
            let mut body = body.clone();
            body["stop"] = json!([stop]);
            body["include_stop_str_in_output"] = json!(include);
            body["stream"] = json!(stream);
            let expected = if include { &text[..at + stop.len()] } else { &text[..at] };
            let reply = server.post("/v1/completions", &body).await;
            let last = if stream {
                let events = reply.events();
                assert_eq!(streamed(&events, 0), expected);
                events.last().unwrap()["choices"][0].clone()
            } else {
                assert_eq!(reply.json()["choices"][0]["text"], expected);
                reply.json()["choices"][0].clone()
            };
            assert_eq!(last["finish_reason"], "stop");
            assert_eq!(last["stop_reason"], stop);
        }
    }
    server.wait_until_empty();
}

#[tokio::test]
async fn end_of_sequence_and_stop_tokens_stop_without_their_text() {
    let server = Setup::default().start();
    let body = json!({"prompt": "Story", "max_tokens": 900, "seed": 4, "return_token_ids": true});
    let choice = server.complete(&body).await["choices"][0].clone();
    assert_eq!(choice["finish_reason"], "stop");
    assert_eq!(choice["stop_reason"], Value::Null);
    assert_eq!(choice["token_ids"].as_array().unwrap().last().unwrap(), harness::EOS);
    assert!(!choice["text"].as_str().unwrap().contains("<|end|>"));
    let token = choice["token_ids"][7].clone();
    let body = json!({"prompt": "Story", "max_tokens": 900, "seed": 4, "stop_token_ids": [token]});
    let choice = server.complete(&body).await["choices"][0].clone();
    assert_eq!(choice["finish_reason"], "stop");
    assert_eq!(choice["stop_reason"], token);
}

#[tokio::test]
async fn log_probabilities_have_a_row_for_each_token() {
    let server = Setup::default().start();
    let body = json!({"prompt": "Hi", "max_tokens": 4, "ignore_eos": true, "seed": 1, "logprobs": 2});
    let reply = server.complete(&body).await;
    let logprobs = &reply["choices"][0]["logprobs"];
    for column in ["tokens", "token_logprobs", "text_offset", "top_logprobs"] {
        assert_eq!(logprobs[column].as_array().unwrap().len(), 4, "{column}");
    }
    assert_eq!(logprobs["text_offset"], json!([0, 1, 2, 3]));
    assert!(logprobs["top_logprobs"][0].as_object().unwrap().len() >= 2);

    let mut body = body;
    body["return_tokens_as_token_ids"] = json!(true);
    let reply = server.complete(&body).await;
    let name = reply["choices"][0]["logprobs"]["tokens"][0].as_str().unwrap();
    assert!(name.starts_with("token_id:"));
}

#[tokio::test]
async fn echo_puts_the_prompt_first_with_its_log_probabilities() {
    let server = Setup::default().start();
    let body = json!({"prompt": "Hello", "max_tokens": 3, "ignore_eos": true, "seed": 1, "echo": true, "logprobs": 1});
    for stream in [false, true] {
        let mut body = body.clone();
        body["stream"] = json!(stream);
        let reply = server.post("/v1/completions", &body).await;
        let (text, tokens) = if stream {
            let events = reply.events();
            let rows =
                events.iter().flat_map(|e| e["choices"][0]["logprobs"]["tokens"].as_array().unwrap().clone());
            (streamed(&events, 0), rows.collect::<Vec<_>>())
        } else {
            let choice = reply.json()["choices"][0].clone();
            let logprobs = &choice["logprobs"];
            assert_eq!(logprobs["token_logprobs"][0], Value::Null);
            assert!(logprobs["token_logprobs"][1].is_number());
            assert_eq!(logprobs["text_offset"], json!([0, 1, 2, 3, 4, 5, 6, 7]));
            (choice["text"].as_str().unwrap().to_owned(), logprobs["tokens"].as_array().unwrap().clone())
        };
        assert!(text.starts_with("Hello"), "{text}");
        assert_eq!(tokens.len(), 8);
        assert_eq!(tokens[..2], [json!("H"), json!("e")]);
    }
    let body = json!({"prompt": "Hello", "max_tokens": 0, "echo": true});
    let reply = server.complete(&body).await;
    assert_eq!(reply["choices"][0]["text"], "Hello");
    assert_eq!(reply["usage"]["completion_tokens"], 0);
}

#[tokio::test]
async fn prompt_log_probabilities_and_token_ids_come_where_asked() {
    let server = Setup::default().start();
    let body = json!({"prompt": "Hey", "max_tokens": 2, "ignore_eos": true, "prompt_logprobs": 1,
                      "return_token_ids": true});
    let choice = server.complete(&body).await["choices"][0].clone();
    assert_eq!(choice["prompt_token_ids"].as_array().unwrap().len(), 3);
    assert_eq!(choice["token_ids"].as_array().unwrap().len(), 2);
    let rows = choice["prompt_logprobs"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[0], Value::Null);
    let token = choice["prompt_token_ids"][1].to_string();
    assert_eq!(rows[1][&token]["decoded_token"], "e");
    assert!(rows[1][&token]["logprob"].is_number() && rows[1][&token]["rank"].is_number());
}

#[tokio::test]
async fn a_repeated_prompt_is_read_from_the_cache() {
    let server = Setup::default().start();
    let body = json!({"prompt": "a".repeat(40), "max_tokens": 2, "ignore_eos": true});
    let cached = |reply: Value| reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert_eq!(cached(server.complete(&body).await), 0);
    assert!(cached(server.complete(&body).await) >= 36);
    let mut salted = body.clone();
    salted["cache_salt"] = json!("tenant");
    assert_eq!(cached(server.complete(&salted).await), 0);
    server.wait_until_empty();
    assert_eq!(server.post("/reset_prefix_cache", &Value::Null).await.json(), json!({"success": true}));
    assert_eq!(cached(server.complete(&body).await), 0);
}

#[tokio::test]
async fn max_tokens_is_clamped_to_the_context_and_prompts_may_be_truncated() {
    let server = Setup::default().start();
    let body = json!({"prompt": "b".repeat(990), "max_tokens": 500, "ignore_eos": true});
    let reply = server.complete(&body).await;
    assert_eq!(reply["usage"]["completion_tokens"], 10);
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
    let body = json!({"prompt": "abcdefgh", "max_tokens": 1, "echo": true, "ignore_eos": true,
                      "truncate_prompt_tokens": 3});
    assert!(server.complete(&body).await["choices"][0]["text"].as_str().unwrap().starts_with("fgh"));
    let mut right = body;
    right["truncation_side"] = json!("right");
    assert!(server.complete(&right).await["choices"][0]["text"].as_str().unwrap().starts_with("abc"));
}

#[tokio::test]
async fn min_tokens_puts_off_every_stop() {
    let server = Setup::default().start();
    let body = json!({"prompt": "Story", "max_tokens": 30, "seed": 4, "skip_special_tokens": false,
                      "ignore_eos": true});
    let text = server.complete(&body).await["choices"][0]["text"].as_str().unwrap().to_owned();
    let stop: String = text.chars().take(1).collect();
    let mut body = body;
    body["stop"] = json!(stop);
    body["min_tokens"] = json!(10);
    let reply = server.complete(&body).await;
    assert!(reply["usage"]["completion_tokens"].as_u64().unwrap() > 10);
}
