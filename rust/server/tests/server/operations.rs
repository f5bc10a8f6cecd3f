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
