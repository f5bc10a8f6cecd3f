//! Who is served when, as callers see it.

use std::sync::Arc;
use std::time::Duration;

use octavo_core::{EngineLimits, Policy};
use octavo_server::client::ClientConfig;
use octavo_server::engine::QueueLimits;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::harness::{Server, Setup, client_config, limits, post, request, send, wait_for};

/// Starts a call with an API key and waits until the engine has it. Its name is
/// added to `ended` at its end.
async fn begin(
    server: &Server,
    key: &'static str,
    body: Value,
    name: &'static str,
    ended: &Arc<Mutex<Vec<&'static str>>>,
) -> JoinHandle<()> {
    let before = server.engine.in_flight().requests;
    let (port, ended) = (server.port, Arc::clone(ended));
    let call = tokio::spawn(async move {
        let mut request = request("POST", "/v1/completions", &body);
        request.headers_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
        assert_eq!(send(port, request).await.status, 200);
        ended.lock().push(name);
    });
    let engine = server.engine.clone();
    spawn_blocking(move || wait_for("a call to begin", || engine.in_flight().requests > before))
        .await
        .unwrap();
    call
}

/// Sends five requests as one tenant and then one as another. True if that one
/// is among the first two to end.
async fn is_soon(server: &Server, heavy: (&'static str, &str), light: (&'static str, &str)) -> bool {
    let ended = Arc::default();
    let body = |user: &str| json!({"prompt": "Hello", "max_tokens": 40, "ignore_eos": true, "user": user});
    server.gate.shut();
    let mut calls = Vec::new();
    for _ in 0..5 {
        calls.push(begin(server, heavy.0, body(heavy.1), "heavy", &ended).await);
    }
    calls.push(begin(server, light.0, body(light.1), "light", &ended).await);
    // Enough steps for two of them, one after another.
    server.gate.allow(100);
    let two = Arc::clone(&ended);
    spawn_blocking(move || wait_for("two ends", || two.lock().len() == 2)).await.unwrap();
    let is_soon = ended.lock().contains(&"light");
    server.gate.open();
    for call in calls {
        call.await.unwrap();
    }
    is_soon
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_is_a_user_or_one_of_several_api_keys() {
    let fair = |keys: &[&str]| {
        let limits = EngineLimits { policy: Policy::FairShare, max_num_seqs: 1, ..limits() };
        let mut setup = Setup { limits, ..Setup::default() };
        setup.server.api_keys = keys.iter().map(|&key| key.to_owned()).collect();
        setup.start()
    };
    assert!(is_soon(&fair(&[]), ("", "a"), ("", "b")).await, "users differ");
    assert!(is_soon(&fair(&["k"]), ("k", "a"), ("k", "b")).await, "one key tells nobody apart");
    assert!(is_soon(&fair(&["k", "l"]), ("k", "a"), ("l", "a")).await, "keys differ");
    assert!(!is_soon(&fair(&["k", "l"]), ("k", "a"), ("k", "b")).await, "more users get a key no more");
}

/// A server of one sequence at once, 5 ms a step.
fn slow(client: ClientConfig) -> Server {
    let limits = EngineLimits { max_num_seqs: 1, max_num_batched_tokens: 16, ..limits() };
    Setup { limits, client, pace: Some(Duration::from_millis(5)), ..Setup::default() }.start()
}

fn long(timeouts: &Value) -> Value {
    let mut body = json!({"prompt": "Hello", "max_tokens": 900, "ignore_eos": true});
    body.as_object_mut().unwrap().extend(timeouts.as_object().unwrap().clone());
    body
}

/// Asserts that the output was cut off in time.
fn assert_cut_off(reply: &Value) {
    let choice = &reply["choices"][0];
    assert_eq!((&choice["finish_reason"], &choice["stop_reason"]), (&json!("length"), &json!("timeout")));
    let tokens = reply["usage"]["completion_tokens"].as_u64().unwrap();
    assert!((1..900).contains(&tokens), "{reply}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timeout_ends_the_output_and_says_so() {
    let server = slow(client_config());
    assert_cut_off(&server.complete(&long(&json!({"timeout_s": 0.3}))).await);
    server.wait_until_empty();
    let metrics = server.get("/metrics").await;
    let counted = r#"vllm:request_success_total{engine="0",finished_reason="timeout",model_name="tiny"} 1"#;
    assert!(metrics.text().contains(counted), "{}", metrics.text());
    let limited = slow(ClientConfig { request_timeout_s: 0.3, ..client_config() });
    assert_cut_off(&limited.complete(&long(&json!({}))).await);
    assert_cut_off(&limited.complete(&long(&json!({"timeout_s": 1e300}))).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_too_long_is_told_to_come_back() {
    let server = slow(client_config());
    let ended = Arc::default();
    let first = begin(&server, "", long(&json!({"timeout_s": 10})), "first", &ended).await;
    for (timeouts, stream) in [
        (json!({"queue_timeout_s": 0.1}), false),
        (json!({"timeout_s": 0.1}), false),
        (json!({"queue_timeout_s": 0.1, "stream": true}), true),
    ] {
        let reply = server.post("/v1/completions", &long(&timeouts)).await;
        if stream {
            let error = &reply.events()[0]["error"];
            assert_eq!((reply.status, &error["code"]), (200, &json!(503)), "the stream had begun");
        } else {
            assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{}", reply.text());
            assert!(reply.error()["message"].as_str().unwrap().contains("queue_timeout_s"));
        }
    }
    first.abort();
    server.wait_until_empty();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_cannot_be_in_time_is_refused_at_once_with_the_estimate() {
    // At most 16 tokens in 5 ms: 3200 a second, so 40 prompts of 800 tokens take 10 s.
    let server = slow(client_config());
    let prompt = |n: usize| format!("{n:03}{}", "x".repeat(797));
    let mut calls = Vec::new();
    for n in 0..40 {
        let (port, body) = (server.port, json!({"prompt": prompt(n), "max_tokens": 1}));
        calls.push(tokio::spawn(async move { post(port, "/v1/completions", &body).await }));
    }
    let engine = server.engine.clone();
    let all = move || wait_for("all calls to begin", || engine.in_flight().requests == 40);
    spawn_blocking(all).await.unwrap();
    let hurried = json!({"prompt": "Hello", "max_tokens": 1, "timeout_s": 0.2});
    let message = loop {
        // Before the pace is known, the request is taken and ends at its time.
        let reply = server.post("/v1/completions", &hurried).await;
        assert_eq!(reply.status, 503, "{}", reply.text());
        let message = reply.error()["message"].as_str().unwrap().to_owned();
        if message.contains("expected") {
            let seconds: u32 = reply.header("retry-after").unwrap().parse().unwrap();
            assert!((1..60).contains(&seconds), "{seconds}");
            break message;
        }
    };
    assert!(message.contains("prompt tokens") && message.contains("timeout_s is 0.2 s"), "{message}");
    let refused = r#"vllm:admission_rejections_total{model_name="tiny",reason="deadline"} 1"#;
    assert!(server.get("/metrics").await.text().contains(refused));
    let patient = json!({"prompt": "Hello", "max_tokens": 1, "timeout_s": 100});
    let patient = tokio::spawn({
        let port = server.port;
        async move { post(port, "/v1/completions", &patient).await.status }
    });
    for call in calls {
        call.abort();
    }
    assert_eq!(patient.await.unwrap(), 200);
}

#[tokio::test]
async fn prompt_tokens_are_bounded_in_the_queue() {
    let queue = QueueLimits { max_requests: 100, max_prompt_tokens: Some(12) };
    let server = Setup { queue, ..Setup::default() }.start();
    server.gate.shut();
    let ended = Arc::default();
    let first = begin(&server, "", json!({"prompt": "12345678", "max_tokens": 1}), "first", &ended).await;
    let body = |prompt: &str| json!({"prompt": prompt, "max_tokens": 1});
    let reply = server.post("/v1/completions", &body("12345")).await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    assert!(reply.error()["message"].as_str().unwrap().contains("--max-num-queued-tokens"));
    let reply = server.post("/v1/completions", &body("1234567890123")).await;
    assert_eq!((reply.status, &reply.error()["param"]), (400, &json!("input_tokens")), "it would never fit");
    let refused = r#"vllm:admission_rejections_total{model_name="tiny",reason="max_num_queued_tokens"}"#;
    assert_eq!(server.metric(refused).await, Some(1.0));
    server.gate.open();
    first.await.unwrap();
    server.complete(&body("12345")).await;
}
