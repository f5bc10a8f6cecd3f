//! What operators watch.

#![allow(clippy::float_cmp, reason = "counts are exact")]

use octavo_core::EngineLimits;
use octavo_server::http::tenant;
use octavo_server::metrics::Reporter;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::{Server, Setup, limits, post, request, send, wait_for};

/// A metric of the engine, with labels of its own that come before the model's name in the alphabet, or after.
fn series(name: &str, before: &str, after: &str) -> String {
    format!(r#"vllm:{name}{{engine="0",{before}model_name="tiny"{after}}}"#)
}

async fn value(server: &Server, name: &str, before: &str, after: &str) -> f64 {
    let series = series(name, before, after);
    server.metric(&series).await.unwrap_or_else(|| panic!("{series} is not exported"))
}

async fn plain(server: &Server, name: &str) -> f64 {
    value(server, name, "", "").await
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

#[tokio::test]
async fn each_prompt_token_has_a_source() {
    let limits = EngineLimits { num_blocks: 12, host_blocks: 40, max_model_len: 48, ..limits() };
    let server = Setup { limits, ..Setup::default() }.start();
    let ask = |prompt: &str| json!({"prompt": prompt, "max_tokens": 1});
    let (first, second) = ("a".repeat(33), "b".repeat(45));
    for prompt in [&first, &second, &first, &first] {
        server.complete(&ask(prompt)).await;
    }
    server.wait_until_empty();
    for (source, tokens) in
        [("local_compute", 33 + 45 + 1 + 1), ("local_cache_hit", 32), ("external_kv_transfer", 32)]
    {
        let after = format!(r#",source="{source}""#);
        assert_eq!(
            value(&server, "prompt_tokens_by_source_total", "", &after).await,
            f64::from(tokens),
            "{source}"
        );
    }
    assert_eq!(plain(&server, "prompt_tokens_total").await, 144.0);
    assert_eq!(plain(&server, "prompt_tokens_cached_total").await, 64.0);
    let host = value(&server, "prompt_tokens_cached_by_source_total", "", r#",source="host""#).await;
    let device = value(&server, "prompt_tokens_cached_by_source_total", "", r#",source="device""#).await;
    assert_eq!((device, host), (32.0, 32.0));
    let hits = plain(&server, "prefix_cache_hits_total").await;
    assert_eq!((hits, plain(&server, "prefix_cache_queries_total").await), (32.0, 144.0));
    let hits = plain(&server, "external_prefix_cache_hits_total").await;
    assert_eq!((hits, plain(&server, "external_prefix_cache_queries_total").await), (32.0, 112.0));
    assert_eq!(plain(&server, "kv_offload_load_bytes_total").await, 8000.0, "blocks of 1000 bytes");
    assert!(plain(&server, "kv_offload_store_bytes_total").await >= 8000.0);
    assert!((plain(&server, "kv_offload_load_time_total").await - 8e-6).abs() < 1e-9, "a microsecond each");
    assert!(plain(&server, "kv_offload_cpu_cache_filled_perc").await > 0.0);
    assert_eq!(plain(&server, "kv_offload_cpu_cache_usage_perc").await, 0.0, "nothing is copied now");
    let disk = series("prompt_tokens_cached_by_source_total", "", r#",source="disk""#);
    assert_eq!(server.metric(&disk).await, None, "there is no disk tier");
}

#[tokio::test]
async fn what_is_not_there_is_not_exported() {
    let server = Setup::default().start();
    server.complete(&json!({"prompt": "Hello", "max_tokens": 1})).await;
    let reply = server.get("/metrics").await;
    for name in ["external_prefix_cache", "kv_offload", "kv_event_batches_lost", "tenant_", "worker_resident"]
    {
        assert!(!reply.text().contains(name), "{name}");
    }
}

#[tokio::test]
async fn a_prompts_choices_are_one_request_of_the_longest() {
    let server = Setup::default().start();
    let body = json!({"prompt": ["Once", "Twice"], "n": 3, "max_tokens": 30, "temperature": 1, "seed": 7});
    let reply = server.complete(&body).await;
    server.wait_until_empty();
    let usage = reply["usage"]["completion_tokens"].as_f64().unwrap();
    assert_eq!(plain(&server, "request_generation_tokens_count").await, 6.0);
    assert_eq!(plain(&server, "request_generation_tokens_sum").await, usage);
    assert_eq!(plain(&server, "request_max_num_generation_tokens_count").await, 2.0);
    let longest = plain(&server, "request_max_num_generation_tokens_sum").await;
    assert!(longest >= usage / 3.0 && longest <= 60.0, "{longest} of {usage}");
    let params_n =
        [plain(&server, "request_params_n_count").await, plain(&server, "request_params_n_sum").await];
    assert_eq!(params_n, [1.0, 3.0]);
    assert_eq!(plain(&server, "request_params_max_tokens_sum").await, 180.0);
}

#[tokio::test]
async fn preemptions_are_counted_for_each_request() {
    let limits = EngineLimits { num_blocks: 14, max_model_len: 48, ..limits() };
    let server = Setup { limits, ..Setup::default() }.start();
    server.gate.shut();
    let mut calls = JoinSet::new();
    for number in 0..4 {
        let body = json!({"prompt": format!("Story {number}:"), "max_tokens": 30, "ignore_eos": true});
        let port = server.port;
        calls.spawn(async move { post(port, "/v1/completions", &body).await.status });
    }
    let engine = server.engine.clone();
    let all = move || wait_for("four requests", || engine.in_flight().requests == 4);
    tokio::task::spawn_blocking(all).await.unwrap();
    server.gate.open();
    assert_eq!(calls.join_all().await, [200; 4]);
    server.wait_until_empty();
    let total = plain(&server, "num_preemptions_total").await;
    assert!(total > 0.0);
    assert_eq!(plain(&server, "request_num_preemptions_sum").await, total);
    assert_eq!(plain(&server, "request_num_preemptions_count").await, 4.0);
}

#[tokio::test]
async fn who_waits_is_told_by_reason() {
    let limits = EngineLimits { max_num_seqs: 2, pipeline_depth: 1, ..limits() };
    let server = Setup { limits, ..Setup::default() }.start();
    server.gate.shut();
    let body = json!({"prompt": ["same prefix", "same prefix", "other", "last"], "max_tokens": 4, "ignore_eos": true});
    let port = server.port;
    let call = tokio::spawn(async move { post(port, "/v1/completions", &body).await.status });
    let engine = server.engine.clone();
    let all =
        move || wait_for("two of four to run", || engine.stats().running == 2 && engine.stats().waiting == 2);
    tokio::task::spawn_blocking(all).await.unwrap();
    let capacity = value(&server, "num_requests_waiting_by_reason", "", r#",reason="capacity""#).await;
    let deferred = value(&server, "num_requests_waiting_by_reason", "", r#",reason="deferred""#).await;
    assert_eq!(
        (capacity, deferred),
        (1.0, 1.0),
        "the last has no slot; the second waits for the first's prefix"
    );
    server.gate.open();
    assert_eq!(call.await.unwrap(), 200);
}

#[tokio::test]
async fn the_engine_says_how_it_is() {
    let server = Setup::default().start();
    let awake = r#",sleep_state="awake""#;
    assert_eq!(value(&server, "engine_sleep_state", "", awake).await, 1.0);
    server.engine.lost_worker();
    assert_eq!(value(&server, "engine_sleep_state", "", awake).await, 0.0);
    let reply = server.get("/metrics").await;
    let info = reply.text().lines().find(|line| line.starts_with("vllm:cache_config_info{")).unwrap();
    for label in
        [r#"block_size="4""#, r#"num_gpu_blocks="2048""#, r#"num_cpu_blocks="0""#, r#"cache_dtype="none""#]
    {
        assert!(info.contains(label), "{label} is not in {info}");
    }
    assert!(info.ends_with("} 1"));
}

#[tokio::test]
async fn http_requests_are_counted_by_route() {
    let server = Setup::default().start();
    let body = json!({"prompt": "Hello", "max_tokens": 7, "ignore_eos": true});
    let reply = server.post("/v1/completions", &body).await;
    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    let stream = server.post("/v1/completions", &streamed).await;
    server.post("/v1/completions", &json!({"prompt": 5})).await;
    for path in ["/what", "/is/this", "/v1/secret?x=1"] {
        assert_eq!(server.get(path).await.status, 404);
    }
    assert_eq!(server.get("/v1/completions").await.status, 405);
    assert_eq!(send(server.port, request("BREW", "/v1/completions", &Value::Null)).await.status, 405);
    for path in ["/health", "/ping", "/ready", "/load", "/version", "/metrics"] {
        server.get(path).await;
    }
    for (labels, count) in [
        (r#"handler="/v1/completions",method="POST",status="2xx""#, 2.0),
        (r#"handler="/v1/completions",method="POST",status="4xx""#, 1.0),
        (r#"handler="/v1/completions",method="GET",status="4xx""#, 1.0),
        (r#"handler="/v1/completions",method="other",status="4xx""#, 1.0),
        (r#"handler="none",method="GET",status="4xx""#, 3.0),
    ] {
        let series = format!("http_requests_total{{{labels}}}");
        wait_for_metric(&server, &series, count).await;
    }
    let of = |name: &str| format!(r#"http_{name}{{handler="/v1/completions"}}"#);
    let sent = (reply.body.len() + stream.body.len()) as f64;
    let all = server.metric(&of("response_size_bytes_sum")).await.unwrap();
    assert!(all > sent && all < sent + 2000.0, "{all} is more than {sent} by three short errors");
    let read =
        [&body, &streamed, &json!({"prompt": 5})].map(|body| body.to_string().len()).iter().sum::<usize>();
    assert_eq!(server.metric(&of("request_size_bytes_sum")).await, Some(read as f64));
    let timed = r#"http_request_duration_seconds_count{handler="/v1/completions",method="POST"}"#;
    assert_eq!(server.metric(timed).await, Some(3.0));
    assert_eq!(server.metric("http_request_duration_highr_seconds_count").await, Some(8.0));
    let text = server.get("/metrics").await;
    let handlers: Vec<&str> =
        text.text().lines().filter(|line| line.starts_with("http_requests_total")).collect();
    assert_eq!(handlers.len(), 5, "nothing else is measured: {handlers:?}");
}

/// An answer is counted once its last byte has left, which the reader may see before.
async fn wait_for_metric(server: &Server, series: &str, expected: f64) {
    let deadline = std::time::Instant::now() + crate::harness::PATIENCE;
    while server.metric(series).await != Some(expected) {
        assert!(std::time::Instant::now() < deadline, "{series} is {:?}", server.metric(series).await);
    }
}

#[tokio::test]
async fn a_reader_who_leaves_is_counted_with_what_it_got() {
    let server = Setup::default().start();
    server.gate.allow(3);
    let body = json!({"prompt": "Hello", "max_tokens": 500, "ignore_eos": true, "stream": true});
    let mut connection = crate::harness::connect(server.port).await;
    let response = connection.send_request(request("POST", "/v1/completions", &body)).await.unwrap();
    assert_eq!(response.status(), 200);
    drop((response, connection));
    server.gate.open();
    let series = r#"http_requests_total{handler="/v1/completions",method="POST",status="2xx"}"#;
    wait_for_metric(&server, series, 1.0).await;
}

#[tokio::test]
async fn the_process_is_described() {
    let server = Setup::default().start();
    let mut values = Vec::new();
    for name in [
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "process_open_fds",
        "process_max_fds",
    ] {
        values.push(server.metric(name).await.unwrap_or_else(|| panic!("{name} is not exported")));
    }
    let [cpu, resident, virtual_memory, open, most] = values[..] else { unreachable!() };
    assert!((0.0..100_000.0).contains(&cpu));
    assert!(resident > 1e6 && resident < virtual_memory, "{resident} {virtual_memory}");
    assert!((3.0..=most).contains(&open), "{open} of {most}");
    let started = server.metric("process_start_time_seconds").await.unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((now - 3600.0..=now + 1.0).contains(&started), "{started} is not within the hour before {now}");
    // Any process has memory; this one stands for a worker.
    server.engine.worker_is(std::process::id());
    assert!(plain(&server, "worker_resident_memory_bytes").await > 1e6);
    server.engine.lost_worker();
    assert_eq!(server.metric(&series("worker_resident_memory_bytes", "", "")).await, None);
}

#[tokio::test]
async fn tenants_are_told_apart_only_where_asked_and_only_so_many() {
    let limits = EngineLimits {
        tenant_weights: vec![(tenant("vip"), 2.0)],
        policy: octavo_core::Policy::FairShare,
        ..limits()
    };
    let mut setup = Setup { limits, ..Setup::default() };
    setup.metrics.max_tenants = 3;
    let server = setup.start();
    let body = |user: &str| json!({"prompt": "Hello", "max_tokens": 3, "ignore_eos": true, "user": user});
    for user in ["alice", "bob", "carol", "dave", "vip", "alice"] {
        server.complete(&body(user)).await;
    }
    server.wait_until_empty();
    let tokens = async |tenant: &str| {
        let after = format!(r#",tenant="{tenant}""#);
        server.metric(&series("tenant_generation_tokens_total", "", &after)).await
    };
    let label = |name: &str| format!("{:016x}", tenant(name).swap_bytes());
    assert_eq!(tokens(&label("alice")).await, Some(6.0));
    assert_eq!(tokens(&label("bob")).await, Some(3.0));
    assert_eq!(tokens(&label("vip")).await, Some(3.0), "who has a weight is known from the start");
    assert_eq!(tokens("other").await, Some(6.0), "carol and dave came after three were known");
    assert_eq!(tokens(&label("carol")).await, None);
    let after = format!(r#",tenant="{}""#, label("alice"));
    assert_eq!(value(&server, "tenant_prompt_tokens_total", "", &after).await, 10.0);
    assert_eq!(value(&server, "tenant_num_requests", "", &after).await, 0.0);
    for name in ["time_to_first_token_seconds", "request_queue_time_seconds", "e2e_request_latency_seconds"] {
        assert_eq!(value(&server, &format!("tenant_{name}_count"), "", &after).await, 2.0);
    }
    let text = server.get("/metrics").await;
    assert!(!text.text().contains("alice"), "names stay inside");
}

#[tokio::test]
async fn a_line_says_what_happened_and_that_it_is_over() {
    let server = Setup::default().start();
    let metrics = server.engine.metrics();
    let mut reporter = Reporter::new(metrics, &server.stats());
    assert_eq!(reporter.line(metrics, &server.stats()), None, "nothing happens");
    for _ in 0..2 {
        server.complete(&json!({"prompt": "Hello you", "max_tokens": 7, "ignore_eos": true})).await;
    }
    server.wait_until_empty();
    let line = reporter.line(metrics, &server.stats()).unwrap();
    let (rates, rest) = line.split_at(line.find("running").unwrap());
    assert!(rates.starts_with("prompt ") && !rates.contains(" 0.0 tokens/s"), "{line}");
    assert_eq!(rest, "running 0, waiting 0, KV usage 0.0%, prefix cache hits 44.4%");
    let over = reporter.line(metrics, &server.stats()).unwrap();
    assert!(over.starts_with("prompt 0.0 tokens/s, generation 0.0 tokens/s"), "{over}");
    assert_eq!(reporter.line(metrics, &server.stats()), None);
}
