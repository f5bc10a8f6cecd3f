//! Keeping prompts in the prefix cache: `cache_control` and `cache_ttl_s`.

use std::time::Instant;

use serde_json::{Value, json};

use crate::harness::{PATIENCE, Server, Setup};

const PATH: &str = "/v1/chat/completions";

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn system() -> Value {
    json!({"role": "system", "content": "You answer in few words. ".repeat(4)})
}

/// Runs a conversation and says how many blocks are pinned after it.
async fn pinned(server: &Server, body: Value) -> usize {
    let mut body = body;
    body["max_tokens"] = json!(1);
    let reply = server.post(PATH, &body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    server.wait_until_empty();
    server.stats().blocks_pinned
}

/// Whole blocks of the first `tokens` tokens.
fn blocks(server: &Server, tokens: usize) -> usize {
    tokens / server.engine.limits().block_size as usize
}

/// Tokens of the text that the template makes of what a message begins with.
async fn tokens(server: &Server, text: &str) -> usize {
    let body = json!({"prompt": text, "add_special_tokens": false});
    server.post("/tokenize", &body).await.json()["count"].as_u64().unwrap() as usize
}

#[tokio::test]
async fn a_breakpoint_keeps_the_prompt_up_to_it() {
    let text = system()["content"].as_str().unwrap().to_owned();
    let control = json!({"type": "ephemeral"});
    let on_message = json!({"role": "system", "content": text, "cache_control": control});
    let on_part = json!({"role": "system", "content": [
        {"type": "text", "text": text, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]});
    for message in [on_message, on_part] {
        let server = Setup::default().start();
        let before = tokens(&server, &format!("<|start|>system\n{text}")).await;
        let messages = json!([message, user(&"Tell me. ".repeat(8))]);
        assert!(blocks(&server, before) > 2);
        let kept = pinned(&server, json!({"messages": messages})).await;
        assert_eq!(kept, blocks(&server, before), "{message}");
    }
}

#[tokio::test]
async fn a_breakpoint_does_not_change_the_prompt() {
    let server = Setup::default().start();
    let mut plain =
        json!({"messages": [system(), user("Hello")], "return_prompt_text": true, "max_tokens": 1});
    let expected = server.post(PATH, &plain).await.json()["prompt_text"].clone();
    plain["messages"][1]["cache_control"] = json!({"type": "ephemeral", "ttl": null});
    plain["cache_control"] = json!({"type": "ephemeral", "ttl": "5m"});
    assert_eq!(server.post(PATH, &plain).await.json()["prompt_text"], expected);
    let tokenized = json!({"messages": plain["messages"]});
    assert_eq!(server.post("/tokenize", &tokenized).await.status, 200);
}

#[tokio::test]
async fn of_the_request_itself_it_covers_the_last_message() {
    let server = Setup::default().start();
    let question = "Tell me. ".repeat(8);
    let all = format!(
        "<|start|>system\n{}<|end|>\n<|start|>user\n{question}",
        system()["content"].as_str().unwrap()
    );
    let expected = blocks(&server, tokens(&server, &all).await);
    let body =
        json!({"messages": [system(), user(&question)], "cache_control": {"type": "ephemeral", "ttl": "1h"}});
    assert_eq!(pinned(&server, body).await, expected);
    // Without a text up to the breakpoint there is nothing to keep.
    let server = Setup::default().start();
    let calls = json!([{"type": "function", "function": {"name": "f", "arguments": "{}"}}]);
    let silent = json!({"role": "assistant", "content": null, "tool_calls": calls, "cache_control": {"type": "ephemeral"}});
    assert_eq!(pinned(&server, json!({"messages": [silent, user(&question)]})).await, 0);
}

#[tokio::test]
async fn cache_ttl_s_keeps_the_whole_prompt_for_its_time() {
    let server = Setup::default().start();
    let prompt = "One two three four. ".repeat(5);
    let count = tokens(&server, &prompt).await;
    for (ttl_s, kept) in [(0.0, 0), (0.5, blocks(&server, count))] {
        let body =
            json!({"prompt": prompt, "cache_ttl_s": ttl_s, "max_tokens": 1, "add_special_tokens": false});
        assert_eq!(server.post("/v1/completions", &body).await.status, 200);
        server.wait_until_empty();
        assert_eq!(server.stats().blocks_pinned, kept, "{ttl_s}");
    }
    // Time is looked at when there is something to do.
    let begin = Instant::now();
    while server.stats().blocks_pinned > 0 {
        assert!(begin.elapsed() < PATIENCE, "the pin does not end");
        server.post("/v1/completions", &json!({"prompt": "x", "max_tokens": 1})).await;
    }
    assert_eq!(
        pinned(&server, json!({"messages": [system()], "cache_ttl_s": 100})).await,
        blocks(
            &server,
            tokens(
                &server,
                &format!(
                    "<|start|>system\n{}<|end|>\n<|start|>assistant\n",
                    system()["content"].as_str().unwrap()
                )
            )
            .await
        )
    );
    assert_eq!(server.post("/reset_prefix_cache", &json!({})).await.status, 200);
    assert_eq!(server.stats().blocks_pinned, 0);
}

#[tokio::test]
async fn the_servers_limit_holds() {
    let mut setup = Setup::default();
    setup.client.max_cache_ttl_s = 0.0;
    let server = setup.start();
    let body = json!({"messages": [system(), user("Hi")], "cache_control": {"type": "ephemeral"}});
    assert_eq!(pinned(&server, body).await, 0);
    let reply = server.post("/v1/completions", &json!({"prompt": "x", "cache_ttl_s": 0.1})).await;
    let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
    assert_eq!(reply.status, 400);
    assert!(message.contains("cache_ttl_s is 0.1") && message.contains("--max-cache-ttl"), "{message}");
}

#[tokio::test]
async fn mistakes_are_400_with_their_place() {
    let server = Setup::default().start();
    for control in [
        json!("ephemeral"),
        json!({}),
        json!({"type": "persistent"}),
        json!({"type": "ephemeral", "ttl": "2h"}),
        json!({"type": "ephemeral", "ttl": 300}),
        json!({"type": "ephemeral", "scope": "all"}),
    ] {
        let mut message = user("Hi");
        message["cache_control"] = control.clone();
        let part = json!([{"type": "text", "text": "Hi", "cache_control": control}]);
        for (body, place) in [
            (json!({"messages": [message]}), "body.messages.0.cache_control"),
            (
                json!({"messages": [{"role": "user", "content": part}]}),
                "body.messages.0.content.0.cache_control",
            ),
            (json!({"messages": [user("Hi")], "cache_control": control}), "body.cache_control"),
        ] {
            let reply = server.post(PATH, &body).await;
            assert_eq!(reply.status, 400, "{body}");
            let error = reply.json()["error"].clone();
            assert_eq!(error["param"], place);
            assert!(error["message"].as_str().unwrap().contains("\"ttl\": \"5m\" or \"1h\""), "{error}");
        }
    }
    let mut message = user("Hi");
    message["cache_control"] = json!({"type": "ephemeral"});
    let reply = server.post(PATH, &json!({"messages": vec![message; 5]})).await;
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("cache_control")));
    for value in [json!(-1), json!(1e9), json!(3601)] {
        let reply = server.post("/v1/completions", &json!({"prompt": "x", "cache_ttl_s": value})).await;
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("cache_ttl_s")));
    }
}
