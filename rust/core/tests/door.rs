//! What is refused at the door, and in which words.

mod drive;

use drive::{limits, prompt, request, sampling};
use octavo_core::engine::check;
use octavo_core::{Engine, EngineLimits, EngineRequest, Kind, SamplingParams, StopRules};

fn refused(limits: &EngineLimits, request: &EngineRequest) -> (&'static str, String) {
    let error = check(limits, request).expect_err("it is refused");
    assert_eq!(error.kind(), Kind::Invalid);
    let mut engine = Engine::new(limits.clone()).expect("the limits are good");
    assert_eq!(engine.add(request.clone()), Err(error.clone()));
    assert!(!engine.has_work());
    (error.param().expect("a field is named"), error.message().to_owned())
}

#[test]
fn prompts_that_cannot_be_served_are_refused_with_the_numbers() {
    let limits = limits();
    let (param, _) = refused(&limits, &request(0, [], 1));
    assert_eq!(param, "input_tokens");

    let (param, message) = refused(&limits, &request(0, prompt(200, 0), 1));
    assert_eq!(param, "input_tokens");
    assert!(message.contains("200") && message.contains("199"), "{message}");
    assert!(check(&limits, &request(0, prompt(199, 0), 1)).is_ok());

    let small = EngineLimits { num_blocks: 10, ..limits.clone() };
    let (param, message) = refused(&small, &request(0, prompt(41, 0), 1));
    assert_eq!(param, "input_tokens");
    assert!(message.contains("11 KV blocks") && message.contains("has 10"), "{message}");
    assert!(check(&small, &request(0, prompt(40, 0), 1)).is_ok());

    let (param, message) = refused(&limits, &request(0, [1, 50], 1));
    assert_eq!(param, "input_tokens");
    assert!(message.contains("50"), "{message}");
}

#[test]
fn rules_that_cannot_be_kept_are_refused() {
    let stop = request(0, [1], 5).stop;
    let with = |stop: StopRules| refused(&limits(), &EngineRequest { stop, ..request(0, [1], 5) }).0;
    assert_eq!(with(StopRules { max_tokens: 0, ..stop.clone() }), "max_tokens");
    assert_eq!(with(StopRules { min_tokens: 6, ..stop.clone() }), "min_tokens");
    assert_eq!(with(StopRules { stop_token_ids: vec![50], ..stop.clone() }), "stop_token_ids");
    assert_eq!(with(StopRules { eos_token_ids: vec![99], ..stop.clone() }), "eos_token_ids");
    let many = StopRules { min_tokens: 1, stop_token_ids: vec![1; 20_000], ..stop.clone() };
    assert_eq!(with(many), "stop_token_ids");

    let with = |sampling| refused(&limits(), &EngineRequest { sampling, ..request(0, [1], 5) }).0;
    assert_eq!(with(SamplingParams { logprobs: Some(4), ..sampling() }), "logprobs");
    assert_eq!(with(SamplingParams { prompt_logprobs: Some(4), ..sampling() }), "prompt_logprobs");
    assert_eq!(with(SamplingParams { logit_bias: vec![(50, 1.0)], ..sampling() }), "logit_bias");
    let many = vec![(1, 1.0); 9000];
    assert_eq!(with(SamplingParams { logit_bias: many, ..sampling() }), "logit_bias");
}

#[test]
fn limits_that_make_no_engine_are_refused_by_name() {
    let param = |limits| Engine::new(limits).unwrap_err().param().unwrap();
    assert_eq!(param(EngineLimits { block_size: 0, ..limits() }), "block_size");
    assert_eq!(param(EngineLimits { num_blocks: 0, ..limits() }), "num_blocks");
    assert_eq!(param(EngineLimits { max_model_len: 1, ..limits() }), "max_model_len");
    assert_eq!(param(EngineLimits { watermark: f32::NAN, ..limits() }), "watermark");
    assert_eq!(param(EngineLimits { pipeline_depth: 3, ..limits() }), "pipeline_depth");
    assert_eq!(param(EngineLimits { max_logprobs: 51, ..limits() }), "max_logprobs");
}
