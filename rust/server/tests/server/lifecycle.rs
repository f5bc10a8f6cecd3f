//! Overload, disconnects, draining and stopping.

use std::time::Duration;

use http_body_util::BodyExt;
use octavo_server::bind;
use octavo_server::engine::QueueLimits;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;

use crate::harness::{PATIENCE, Reply, Server, Setup, connect, get, post, request, server_config, wait_for};

fn long(stream: bool) -> Value {
    json!({"prompt": "Hello", "max_tokens": 900, "ignore_eos": true, "stream": stream})
}

/// Starts a call in the background and waits until the engine has it.
async fn begin(server: &Server, body: &Value) -> tokio::task::JoinHandle<Reply> {
    let before = server.engine.in_flight().requests;
    let (port, body) = (server.port, body.clone());
    let call = tokio::spawn(async move { post(port, "/v1/completions", &body).await });
    let engine = server.engine.clone();
    tokio::task::spawn_blocking(move || wait_for("a call to begin", || engine.in_flight().requests > before))
        .await
        .unwrap();
    call
}

#[tokio::test]
async fn overload_is_503_with_retry_after_even_for_streams() {
    let queue = QueueLimits { max_requests: 2, max_prompt_tokens: None };
    let server = Setup { queue, ..Setup::default() }.start();
    server.gate.shut();
    let calls = [begin(&server, &long(false)).await, begin(&server, &long(true)).await];
    assert_eq!(server.get("/load").await.json(), json!({"server_load": 2}));
    let reply = server.post("/v1/completions", &long(true)).await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    let error = reply.error();
    assert_eq!((error["type"].as_str(), &error["param"]), (Some("Service Unavailable"), &Value::Null));
    server.gate.open();
    for call in calls {
        assert_eq!(call.await.unwrap().status, 200);
    }
    let refused = r#"vllm:admission_rejections_total{model_name="tiny",reason="max_num_queued_reqs"} 1"#;
    assert!(server.get("/metrics").await.text().contains(refused));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_clients_that_leave_at_random_leave_nothing_behind() {
    let server = Setup::default().start();
    let mut clients = JoinSet::new();
    for number in 0..100_u64 {
        let port = server.port;
        clients.spawn(async move {
            let mut body = long(number % 3 != 0);
            body["n"] = json!(1 + number % 3);
            let text = body.to_string();
            let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let head = format!(
                "POST /v1/completions HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n\
                 content-length: {}\r\n\r\n",
                text.len()
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            // Some leave in the middle of their request, some at once, some after a little or much of the reply.
            let sent = if number % 10 == 0 { text.len() / 2 } else { text.len() };
            stream.write_all(&text.as_bytes()[..sent]).await.unwrap();
            let mut left = if number % 3 == 0 { 0 } else { (number * 7919) % 20_000 } as usize;
            let mut buffer = [0; 1024];
            while left > 0 && number % 10 != 0 {
                let read = stream.read(&mut buffer).await.unwrap();
                if read == 0 {
                    break;
                }
                left = left.saturating_sub(read);
            }
        });
    }
    clients.join_all().await;
    let server = tokio::task::spawn_blocking(move || {
        server.wait_until_empty();
        server
    });
    let server = server.await.unwrap();
    assert_eq!(server.get("/load").await.json(), json!({"server_load": 0}));
    server.complete(&json!({"prompt": "still here"})).await;
}

#[tokio::test]
async fn leaving_a_reply_that_is_not_streamed_aborts_it() {
    let server = Setup::default().start();
    server.gate.shut();
    let call = begin(&server, &long(false)).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    server.gate.open();
    tokio::task::spawn_blocking(move || server.wait_until_empty()).await.unwrap();
}

#[tokio::test]
async fn a_reader_that_stalls_holds_up_nobody_and_loses_nothing() {
    let server = Setup::default().start();
    let mut connection = connect(server.port).await;
    let body = json!({"prompt": "Hello", "max_tokens": 990, "ignore_eos": true, "stream": true, "logprobs": 5,
                      "n": 20, "stream_options": {"include_usage": true}});
    let response = connection.send_request(request("POST", "/v1/completions", &body)).await.unwrap();
    let engine = server.engine.clone();
    tokio::task::spawn_blocking(move || {
        wait_for("the engine to finish", || engine.in_flight().requests == 0);
    })
    .await
    .unwrap();
    let events = Reply::read(response).await.events();
    assert_eq!(events.last().unwrap()["usage"]["completion_tokens"], 20 * 990);
}

#[tokio::test]
async fn idle_streams_are_kept_alive_by_comments() {
    let mut setup = Setup::default();
    setup.server.sse_keep_alive_interval_s = 1;
    let server = setup.start();
    server.gate.shut();
    let mut connection = connect(server.port).await;
    let response = connection.send_request(request("POST", "/v1/completions", &long(true))).await.unwrap();
    let mut body = response.into_body();
    let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(frame.starts_with(b": "), "{frame:?}");
    server.gate.open();
    assert!(body.collect().await.unwrap().to_bytes().ends_with(b"data: [DONE]\n\n"));
}

#[tokio::test]
async fn shutdown_drains_what_runs_and_refuses_what_is_new() {
    let server = Setup::default().start();
    server.gate.shut();
    let calls = [begin(&server, &long(true)).await, begin(&server, &long(false)).await];
    server.http.shutdown();
    let port = server.port;
    while get(port, "/ready").await.status == 200 {}
    assert_eq!(get(port, "/health").await.status, 200, "it lives");
    let reply = post(port, "/v1/completions", &long(false)).await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    assert!(!server.http.wait(Duration::ZERO), "the server waits for its requests");
    server.gate.open();
    let [stream, whole] = calls;
    assert_eq!(stream.await.unwrap().events().last().unwrap()["choices"][0]["finish_reason"], "length");
    assert_eq!(whole.await.unwrap().json()["usage"]["completion_tokens"], 900);
    tokio::task::spawn_blocking(move || assert!(server.http.wait(PATIENCE))).await.unwrap();
    assert!(TcpStream::connect(("127.0.0.1", port)).await.is_err(), "the port is free again");
}

#[tokio::test]
async fn a_second_shutdown_or_no_time_aborts_what_runs() {
    for timeout_s in [0, 1000] {
        let mut setup = Setup::default();
        setup.server.shutdown_timeout_s = timeout_s;
        let server = setup.start();
        server.gate.shut();
        let call = begin(&server, &long(true)).await;
        server.http.shutdown();
        if timeout_s > 0 {
            server.http.shutdown();
        }
        let events = call.await.unwrap().events();
        assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "abort");
        server.gate.open();
        tokio::task::spawn_blocking(move || assert!(server.http.wait(PATIENCE))).await.unwrap();
    }
}

#[tokio::test]
async fn sigterm_drains_and_a_second_one_stops() {
    let mut setup = Setup::default();
    setup.server.shutdown_timeout_s = 1000;
    let server = Setup { handle_signals: true, ..setup }.start();
    server.gate.shut();
    let call = begin(&server, &long(true)).await;
    let terminate = || {
        let status =
            std::process::Command::new("kill").args(["-TERM", &std::process::id().to_string()]).status();
        assert!(status.unwrap().success());
    };
    terminate();
    while get(server.port, "/ready").await.status == 200 {}
    assert!(!server.http.wait(Duration::ZERO));
    terminate();
    assert_eq!(call.await.unwrap().events().last().unwrap()["choices"][0]["finish_reason"], "abort");
    server.gate.open();
    tokio::task::spawn_blocking(move || assert!(server.http.wait(PATIENCE))).await.unwrap();
}

#[tokio::test]
async fn a_failed_engine_ends_streams_with_an_error_and_health_with_503() {
    let server = Setup::default().start();
    server.gate.shut();
    let calls = [begin(&server, &long(true)).await, begin(&server, &long(false)).await];
    server.engine.fail("the worker has died");
    let [stream, whole] = calls;
    let stream = stream.await.unwrap();
    assert_eq!(stream.status, 200);
    assert_eq!(stream.events().last().unwrap()["error"]["type"], "InternalServerError");
    let whole = whole.await.unwrap();
    assert_eq!(whole.status, 500);
    assert!(whole.error()["message"].as_str().unwrap().contains("the worker has died"));
    for path in ["/health", "/ready", "/health_generate"] {
        assert_eq!(server.get(path).await.status, 503, "{path}");
    }
    assert_eq!(server.post("/v1/completions", &long(false)).await.status, 500);
    server.gate.open();
}

#[test]
fn a_port_in_use_is_one_clear_error() {
    let taken = bind(&server_config()).unwrap();
    let mut config = server_config();
    config.port = taken.port();
    let error = bind(&config).unwrap_err();
    assert_eq!(error.param(), Some("port"));
    assert!(
        error.message().contains(&taken.port().to_string()) && error.message().contains("in use"),
        "{error}"
    );
    config.host = "no such host".to_owned();
    assert_eq!(bind(&config).unwrap_err().param(), Some("host"));
}

#[tokio::test]
async fn a_unix_socket_serves_and_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("octavo.sock");
    let mut setup = Setup::default();
    setup.server.uds = Some(path.clone());
    let config = setup.server.clone();
    let server = setup.start();
    assert_eq!(server.http.address(), format!("unix:{}", path.display()));
    let mut stream = UnixStream::connect(&path).await.unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 OK"), "{reply}");
    assert!(bind(&config).unwrap_err().message().contains("in use"));
    tokio::task::spawn_blocking(move || drop(server)).await.unwrap();
    assert!(!path.exists());
    // A file that a crashed server left is taken over.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    bind(&config).unwrap();
}

#[tokio::test]
async fn a_server_without_its_worker_lives_and_is_not_ready() {
    let server = Setup::default().start();
    server.engine.lost_worker();
    let reply = server.get("/ready").await;
    assert_eq!((server.get("/health").await.status, reply.status), (200, 503));
    assert!(reply.error()["message"].as_str().unwrap().contains("worker"));
    server.engine.recover();
    assert_eq!(server.get("/ready").await.status, 200);
}

#[tokio::test]
async fn health_generate_generates() {
    let mut setup = Setup::default();
    setup.server.health_generate_timeout_s = 0.3;
    let server = setup.start();
    let before = server.engine.stats();
    assert_eq!(server.get("/health_generate").await.status, 200);
    let after = server.engine.stats();
    assert_eq!((after.generated_tokens - before.generated_tokens, after.blocks_cached), (1, 0));
    server.gate.shut();
    let reply = server.get("/health_generate").await;
    assert_eq!(reply.status, 503);
    assert!(reply.error()["message"].as_str().unwrap().contains("no token"));
    server.gate.open();
}
