//! Who is served when, as callers see it.

use std::sync::Arc;

use octavo_core::{EngineLimits, Policy};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::harness::{Server, Setup, limits, request, send, wait_for};

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
