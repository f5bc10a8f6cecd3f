//! `octavo-bench load` against a server whose streams are known.
#![allow(clippy::unwrap_used, reason = "a test")]

mod server;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use clap::Parser;
use octavo_bench::load::{LoadArgs, Report, measure};
use serde_json::{Value, json};
use tokio::sync::Barrier;

use self::server::{Answer, Server, completion};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    load: LoadArgs,
}

async fn load(server: &Server, flags: &str) -> Result<Report, String> {
    let line = format!("load --base-url {} {flags}", server.base_url);
    let args = Cli::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())?.load;
    measure(&args).await.map_err(|error| error.to_string())
}

/// Bodies but for the question whether ids are taken.
fn measured(server: &Server) -> Vec<Value> {
    server.bodies().into_iter().filter(|body| body["max_tokens"] != 1).collect()
}

#[tokio::test]
async fn a_closed_loop_keeps_its_concurrency_and_its_connections() {
    // No reply is written before four requests are there.
    let barrier = Arc::new(Barrier::new(4));
    let server = Server::start(move |_, body| {
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait().await;
            completion(&body)
        }
    })
    .await;
    let flags =
        "--num-prompts 20 --concurrency 4 --input-len 9 --output-len 6 --num-warmups 0 --prompt-format ids";
    let report = load(&server, flags).await.unwrap().json;
    assert_eq!(report["completed"], 20);
    assert_eq!(report["failed"], 0);
    assert_eq!(report["peak_concurrency"], 4);
    assert_eq!(report["total_input_tokens"], 180);
    assert_eq!(report["total_output_tokens"], 120);
    // Four, and a few that were opened while one of the four came back.
    assert!(server.connections.load(Ordering::SeqCst) <= 10);
    assert_eq!(report["model_id"], "tiny");
    for statistic in ["mean", "median", "p90", "p99", "max"] {
        for name in ["ttft", "tpot", "itl", "e2el", "lag"] {
            assert!(report[&format!("{statistic}_{name}_ms")].is_number(), "{statistic} {name}");
        }
    }
    assert!(report["max_ttft_ms"].as_f64() <= report["max_e2el_ms"].as_f64());
}

#[tokio::test]
async fn a_connection_that_ends_unanswered_is_tried_once_more() {
    let answered = |number: usize, body: &Value| if number == 2 { Answer::Close } else { completion(body) };
    let server = Server::start(move |number, body| async move { answered(number, &body) }).await;
    let flags =
        "--num-prompts 4 --concurrency 1 --input-len 4 --output-len 2 --num-warmups 0 --prompt-format words";
    let report = load(&server, flags).await.unwrap().json;
    assert_eq!((&report["completed"], &report["failed"]), (&json!(4), &json!(0)));
    let bodies = server.bodies();
    assert_eq!((bodies.len(), &bodies[2]), (5, &bodies[3]));

    let dead = Server::start(|_, _| async { Answer::Close }).await;
    let report = load(&dead, flags).await.unwrap().json;
    assert_eq!(report["failed"], 4);
    assert_eq!(dead.bodies().len(), 8);
}

#[tokio::test]
async fn the_wait_for_a_place_counts() {
    let server = Server::start(|_, body| async move { completion(&body) }).await;
    let flags = "--num-prompts 50 --request-rate 1000000 --max-concurrency 1 --output-len 20 --input-len 4";
    let report = load(&server, flags).await.unwrap().json;
    // All arrive at the start; the last one waits for all the others.
    let (duration_s, last_ms) =
        (report["duration"].as_f64().unwrap(), report["max_e2el_ms"].as_f64().unwrap());
    assert!(last_ms > 800.0 * duration_s, "{last_ms} ms of {duration_s} s");
    assert!(report["max_lag_ms"].as_f64() > report["median_lag_ms"].as_f64());
    assert_eq!(report["peak_concurrency"], 1);
}

#[tokio::test]
async fn the_same_seed_sends_the_same_load() {
    let mut sent = Vec::new();
    for seed in [1, 1, 2] {
        let server = Server::start(|_, body| async move { completion(&body) }).await;
        let flags = format!("--num-prompts 6 --input-len 20 --output-len 8 --range-ratio 0.5 --seed {seed}");
        load(&server, &flags).await.unwrap();
        let mut bodies: Vec<String> = measured(&server).iter().map(Value::to_string).collect();
        bodies.sort();
        sent.push(bodies);
    }
    assert_eq!(sent[0], sent[1]);
    assert_ne!(sent[0], sent[2]);
}

#[tokio::test]
async fn prefixes_are_shared() {
    let server = Server::start(|_, body| async move { completion(&body) }).await;
    let flags =
        "--num-prompts 30 --prefix-len 8 --num-prefixes 2 --input-len 3 --output-len 2 --num-warmups 0";
    let report = load(&server, flags).await.unwrap().json;
    assert_eq!(report["total_input_tokens"], 30 * 11);
    let prefixes: std::collections::BTreeSet<String> = measured(&server)
        .iter()
        .map(|body| json!(body["prompt"].as_array().unwrap()[..8]).to_string())
        .collect();
    assert_eq!(prefixes.len(), 2);
}

#[tokio::test]
async fn a_server_that_refuses_ids_gets_words() {
    let server = Server::start(|_, body| async move {
        if body["prompt"].is_array() {
            return Answer::Status("400 Bad Request", r#"{"error": {"message": "prompt must be text"}}"#);
        }
        completion(&body)
    })
    .await;
    let report = load(&server, "--num-prompts 3 --input-len 5 --output-len 2").await.unwrap().json;
    assert_eq!(report["completed"], 3);
    for body in measured(&server) {
        assert_eq!(body["prompt"].as_str().unwrap().split_whitespace().count(), 5);
    }
}

#[tokio::test]
async fn chat_turns_carry_the_replies_and_the_role_is_no_output() {
    let server = Server::start(|number, _| async move {
        let events = [
            r#"{"choices": [{"delta": {"role": "assistant", "content": ""}}]}"#.to_owned(),
            format!(r#"{{"choices": [{{"delta": {{"content": "reply {number}"}}}}]}}"#),
            r#"{"choices": [{"delta": {"content": "!"}}]}"#.to_owned(),
            r#"{"choices": [{"delta": {}, "finish_reason": "stop"}]}"#.to_owned(),
            "[DONE]".to_owned(),
        ];
        Answer::Events(events.into())
    })
    .await;
    let flags = "--endpoint /v1/chat/completions --turns 3 --num-prompts 1 --input-len 2 --num-warmups 0 --concurrency 1";
    let report = load(&server, flags).await.unwrap().json;
    assert_eq!(report["completed"], 3);
    // Two events of output in each of three streams, none with usage.
    assert_eq!((&report["total_output_tokens"], &report["counted_by_events"]), (&json!(6), &json!(3)));
    let bodies = server.bodies();
    let roles: Vec<&str> = bodies[2]["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user"]);
    assert_eq!(bodies[2]["messages"][1]["content"], "reply 0!");
    assert_eq!(bodies[2]["messages"][0], bodies[0]["messages"][0]);
}

#[tokio::test]
async fn failures_are_told_apart_and_end_their_conversation() {
    let server = Server::start(|number, body| async move {
        let token = r#"{"choices": [{"text": "x"}]}"#.to_owned();
        match number {
            1 => Answer::Status("503 Service Unavailable", "busy"),
            2 => Answer::Events(vec![token]),
            3 => Answer::Events(vec![
                token,
                r#"{"error": {"message": "device lost"}}"#.into(),
                "[DONE]".into(),
            ]),
            4 => Answer::Events(vec!["[DONE]".into()]),
            5 => Answer::Events(vec!["{not json".into()]),
            _ => completion(&body),
        }
    })
    .await;
    let flags = "--num-prompts 6 --turns 2 --input-len 3 --output-len 2 --concurrency 1 --num-warmups 0";
    let report = load(&server, flags).await.unwrap();
    // Request 0 is a first turn; from then on each turn that fails is followed by a new conversation.
    let errors =
        json!({"http_503": 1, "truncated": 1, "stream_error": 1, "empty": 1, "protocol": 1, "not_sent": 4});
    assert_eq!(report.json["errors"], errors);
    assert_eq!((&report.json["completed"], &report.json["failed"]), (&json!(3), &json!(9)));
    assert!(report.table.contains("device lost"), "{}", report.table);
}

#[tokio::test]
async fn a_ramp_ends_at_its_bounds() {
    let server = Server::start(|_, body| async move { completion(&body) }).await;
    let flags = "--ramp concurrency --ramp-max 5 --goodput e2el:60000 --input-len 3 --output-len 2";
    let report = load(&server, flags).await.unwrap().json;
    assert_eq!(report["knee"], 5.0);
    let tried: Vec<u64> = report["levels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|level| level["max_concurrency"].as_u64().unwrap())
        .collect();
    assert_eq!(tried, [1, 2, 4, 5]);
    let flags = "--ramp rate --ramp-start 400 --goodput ttft:0 --ramp-level-seconds 0.01 --input-len 3 --output-len 2";
    assert_eq!(load(&server, flags).await.unwrap().json["knee"], Value::Null);
}

#[tokio::test]
async fn prompts_come_from_a_file() {
    let path = std::env::temp_dir().join(format!("octavo-bench-{}.jsonl", std::process::id()));
    std::fs::write(&path, "{\"prompt\": \"one\", \"output_len\": 3}\n\n{\"prompt\": [1, 2]}\n").unwrap();
    let server = Server::start(|_, body| async move { completion(&body) }).await;
    let flags = format!("--dataset-path {} --num-prompts 4 --concurrency 1 --num-warmups 0", path.display());
    let report = load(&server, &flags).await.unwrap().json;
    std::fs::remove_file(&path).unwrap();
    let asked: Vec<(Value, Value)> = server
        .bodies()
        .into_iter()
        .map(|body| (body["prompt"].clone(), body["max_tokens"].clone()))
        .collect();
    let (one, two) = ((json!("one"), json!(3)), (json!([1, 2]), json!(128)));
    assert_eq!(asked, [one.clone(), two.clone(), one, two]);
    assert_eq!(report["total_output_tokens"], 2 * (3 + 128));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base_url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let server = Server { base_url: base_url.clone(), connections: Arc::default(), bodies: Arc::default() };
    let error = load(&server, "").await.unwrap_err();
    assert!(error.contains(&base_url) && error.contains("is the server up?"), "{error}");
    assert!(load(&server, "--ramp rate").await.unwrap_err().contains("--goodput"));
    assert!(load(&server, "--endpoint /v1/embeddings").await.unwrap_err().contains("--endpoint"));
}
