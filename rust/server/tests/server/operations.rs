//! The routes around generation.

use serde_json::{Value, json};

use crate::harness::Setup;

#[tokio::test]
async fn models_lists_every_served_name() {
    let server = Setup::default().start();
    let list = server.get("/v1/models").await.json();
    assert_eq!(list["object"], "list");
    let ids: Vec<&Value> = list["data"].as_array().unwrap().iter().map(|card| &card["id"]).collect();
    assert_eq!(ids, ["tiny", "other"]);
    let card = &list["data"][0];
    assert_eq!(card["owned_by"], "octavo");
    assert_eq!(card["max_model_len"], 1000);
    assert_eq!(card["root"], "/models/tiny");
    assert_eq!(card["permission"][0]["object"], "model_permission");
}

#[tokio::test]
async fn health_version_and_load_answer() {
    let server = Setup::default().start();
    for path in ["/health", "/ping", "/ready"] {
        let reply = server.get(path).await;
        assert_eq!((reply.status, reply.body.len()), (200, 0), "{path}");
    }
    assert_eq!(server.post("/ping", &Value::Null).await.status, 200);
    assert_eq!(server.get("/version").await.json(), json!({"version": "1.2.3"}));
    assert_eq!(server.get("/load").await.json(), json!({"server_load": 0}));
}

#[tokio::test]
async fn tokens_go_there_and_back() {
    let server = Setup::default().start();
    let body = json!({"prompt": "Hi <|end|>é", "return_token_strs": true});
    let reply = server.post("/tokenize", &body).await.json();
    assert_eq!(reply["count"], 6);
    assert_eq!(reply["max_model_len"], 1000);
    assert_eq!(reply["token_strs"][3], "<|end|>");
    let back = server.post("/detokenize", &json!({"tokens": reply["tokens"]})).await.json();
    assert_eq!(back, json!({"prompt": "Hi <|end|>é"}));
    let messages = json!({"messages": [{"role": "user", "content": "Hi"}]});
    let reply = server.post("/tokenize", &messages).await.json();
    let back = server.post("/detokenize", &json!({"tokens": reply["tokens"]})).await.json();
    assert_eq!(back["prompt"], "<|start|>user\nHi<|end|>\n<|start|>assistant\n");
    assert_eq!(server.post("/tokenize", &json!({})).await.error()["param"], "prompt");
    assert_eq!(server.post("/detokenize", &json!({})).await.error()["param"], "body.tokens");
    assert_eq!(server.post("/detokenize", &json!({"tokens": [5000]})).await.error()["param"], "tokens");
    assert_eq!(server.post("/detokenize", &json!({"tokens": [-1]})).await.error()["param"], "body.tokens.0");
}

#[tokio::test]
async fn metrics_count_what_happened() {
    let server = Setup::default().start();
    server.complete(&json!({"prompt": "Hello", "max_tokens": 7, "ignore_eos": true})).await;
    server.wait_until_empty();
    let reply = server.get("/metrics").await;
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let labels = r#"{engine="0",model_name="tiny"}"#;
    for line in [
        format!("vllm:prompt_tokens_total{labels} 5"),
        format!("vllm:generation_tokens_total{labels} 7"),
        format!("vllm:num_requests_running{labels} 0"),
        format!("vllm:num_requests_waiting{labels} 0"),
        format!("vllm:kv_cache_usage_perc{labels} 0"),
        format!("vllm:prefix_cache_queries_total{labels} 5"),
        format!("vllm:time_to_first_token_seconds_count{labels} 1"),
        format!("vllm:inter_token_latency_seconds_count{labels} 6"),
        format!("vllm:e2e_request_latency_seconds_count{labels} 1"),
        format!("vllm:request_generation_tokens_sum{labels} 7"),
        r#"vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"} 1"#.to_owned(),
    ] {
        assert!(reply.text().lines().any(|have| have == line), "{line} is not in\n{}", reply.text());
    }
}

#[tokio::test]
async fn a_stop_string_counts_as_a_stop() {
    let server = Setup::default().start();
    let body = json!({"prompt": "Story", "max_tokens": 50, "ignore_eos": true, "seed": 4});
    let text = server.complete(&body).await["choices"][0]["text"].as_str().unwrap().to_owned();
    let mut body = body;
    body["stop"] = json!(text.chars().skip(5).take(2).collect::<String>());
    // The device stops soon after, so that the engine cannot end the request by itself.
    server.gate.allow(20);
    server.complete(&body).await;
    server.gate.open();
    server.wait_until_empty();
    let metrics = server.get("/metrics").await;
    let stopped = r#"vllm:request_success_total{engine="0",finished_reason="stop",model_name="tiny"} 1"#;
    assert!(metrics.text().contains(stopped), "{}", metrics.text());
}
