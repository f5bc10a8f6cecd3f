//! The client and the engine handle without HTTP.

use octavo_core::Kind;
use octavo_server::client::{Delta, FinishReason, Prompt, StopReason};
use octavo_server::engine::QueueLimits;
use octavo_server::{Client, GenerateRequest, SamplingOptions};

use crate::harness::{Setup, wait_for};

fn request(text: &str, options: SamplingOptions) -> GenerateRequest {
    let prompt = Prompt::Text { text: text.to_owned(), add_special_tokens: true };
    GenerateRequest { prompts: vec![prompt], options }
}

fn options(max_tokens: i64) -> SamplingOptions {
    SamplingOptions {
        max_tokens: Some(max_tokens),
        ignore_eos: true,
        seed: Some(1),
        ..SamplingOptions::default()
    }
}

async fn collect(client: &Client, request: GenerateRequest) -> Vec<Delta> {
    let mut output = client.generate(request).await.unwrap();
    let mut deltas = Vec::new();
    while let Some(delta) = output.next().await {
        deltas.push(delta.unwrap());
    }
    deltas
}

#[tokio::test]
async fn deltas_carry_all_tokens_and_one_finish() {
    let (_engine, client, _device) = Setup::default().engine();
    let deltas = collect(&client, request("Hello", options(20))).await;
    assert_eq!(deltas.iter().map(|delta| delta.token_ids.len()).sum::<usize>(), 20);
    let tokens: Vec<u32> = deltas.iter().flat_map(|delta| delta.token_ids.clone()).collect();
    let text: String = deltas.iter().map(|delta| delta.text.as_str()).collect();
    assert_eq!(text, client.tokenizer().decode(&tokens, true));
    let finishes: Vec<_> = deltas.iter().filter_map(|delta| delta.finish.as_ref()).collect();
    assert_eq!(finishes.len(), 1);
    assert_eq!(finishes[0].reason, FinishReason::Length);
}

#[tokio::test]
async fn without_detokenizing_only_tokens_come() {
    let (_engine, client, _device) = Setup::default().engine();
    let options = SamplingOptions { detokenize: false, stop_token_ids: vec![3], ..options(500) };
    let deltas = collect(&client, request("Hello", options)).await;
    assert!(deltas.iter().all(|delta| delta.text.is_empty()));
    let finish = deltas.last().unwrap().finish.clone().unwrap();
    assert_eq!(finish.stop_reason, Some(StopReason::Token(3)));
    assert_eq!(deltas.last().unwrap().token_ids.last(), Some(&3));
}

#[tokio::test]
async fn a_seed_decides_and_fresh_ones_differ() {
    let (_engine, client, _device) = Setup::default().engine();
    let run = async |seed: Option<i64>| {
        let deltas = collect(&client, request("Hello", SamplingOptions { seed, ..options(12) })).await;
        deltas.iter().flat_map(|delta| delta.token_ids.clone()).collect::<Vec<_>>()
    };
    assert_eq!(run(Some(7)).await, run(Some(7)).await);
    assert_ne!(run(Some(7)).await, run(Some(8)).await);
    assert_ne!(run(None).await, run(None).await);
    assert_ne!(run(Some(-1)).await, run(Some(-1)).await);
}

#[tokio::test]
async fn long_prompts_are_tokenized_elsewhere_with_the_same_outcome() {
    let mut setup = Setup::default();
    setup.limits.max_model_len = 40_000;
    setup.limits.num_blocks = 20_000;
    let (_engine, client, _device) = setup.engine();
    let output = client.generate(request(&"word ".repeat(4000), options(1))).await.unwrap();
    assert_eq!(output.prompt_tokens(), 20_000);
    let error = client.generate(request(&"x".repeat(50_000), options(1))).await.unwrap_err();
    assert_eq!((error.kind(), error.param()), (Kind::Invalid, Some("input_tokens")));
}

#[tokio::test]
async fn dropping_a_stream_frees_its_blocks() {
    let (engine, client, device) = Setup::default().engine();
    device.gate().shut();
    let output = client.generate(request("Hello", SamplingOptions { n: 3, ..options(500) })).await.unwrap();
    wait_for("blocks to be leased", || engine.stats().blocks_used > 0);
    drop(output);
    device.gate().open();
    wait_for("blocks to be free", || engine.stats().blocks_used == 0 && engine.in_flight().requests == 0);
}

#[tokio::test]
async fn the_queue_limits_refuse_whole_calls() {
    let queue = QueueLimits { max_requests: 4, max_prompt_tokens: Some(12) };
    let (engine, client, device) = Setup { queue, ..Setup::default() }.engine();
    device.gate().shut();
    let first = client.generate(request("12345678", SamplingOptions { n: 1, ..options(5) })).await.unwrap();
    let error = client.generate(request("x", SamplingOptions { n: 4, ..options(5) })).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Overloaded);
    let error = client.generate(request("12345", options(5))).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Overloaded);
    assert!(error.message().contains("12"), "{error}");
    let error = client.generate(request("x", SamplingOptions { n: 5, ..options(5) })).await.unwrap_err();
    assert_eq!((error.kind(), error.param()), (Kind::Invalid, Some("n")), "it would never be taken");
    assert_eq!(engine.in_flight().requests, 1, "nothing of a refused call stays");
    let second = client.generate(request("1234", options(5))).await.unwrap();
    drop((first, second));
    device.gate().open();
    wait_for("room", || engine.in_flight().requests == 0 && engine.in_flight().prompt_tokens == 0);
    collect(&client, request("12345", options(5))).await;
}

#[tokio::test]
async fn a_stopped_engine_aborts_and_a_failed_one_says_why() {
    let (engine, client, device) = Setup::default().engine();
    device.gate().shut();
    let mut output = client.generate(request("Hello", options(500))).await.unwrap();
    engine.stop();
    device.gate().open();
    let mut last = None;
    while let Some(delta) = output.next().await {
        last = delta.unwrap().finish;
    }
    assert_eq!(last.unwrap().reason, FinishReason::Abort);
    assert_eq!(client.generate(request("Hello", options(5))).await.unwrap_err().kind(), Kind::Overloaded);

    let (engine, client, device) = Setup::default().engine();
    device.gate().shut();
    let mut output = client.generate(request("Hello", options(500))).await.unwrap();
    engine.fail("the worker has gone");
    device.gate().open();
    let error = loop {
        match output.next().await.unwrap() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(error.message().contains("the worker has gone"), "{error}");
    assert!(output.next().await.is_none());
    let error = client.generate(request("Hello", options(5))).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Internal);
}

#[tokio::test]
async fn who_waits_for_ends_gets_one_delta() {
    let (_engine, client, device) = Setup::default().engine();
    device.gate().shut();
    let mut output = client.generate(request("Hello", options(200))).await.unwrap();
    output.wait_for_ends();
    device.gate().open();
    let first = output.next().await.unwrap().unwrap();
    assert_eq!(first.token_ids.len(), 200);
    assert!(first.finish.is_some());
}

#[tokio::test]
async fn a_slow_reader_gets_all_tokens_at_once() {
    let (engine, client, _device) = Setup::default().engine();
    let mut output = client.generate(request("Hello", options(300))).await.unwrap();
    wait_for("the engine to be done without a reader", || engine.in_flight().requests == 0);
    let delta = output.next().await.unwrap().unwrap();
    assert_eq!(delta.token_ids.len(), 300);
    assert!(delta.finish.is_some());
    assert!(output.next().await.is_none());
}
