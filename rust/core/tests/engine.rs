//! Batching, chunking, preemption, stopping and aborting, as a door sees them.

mod drive;

use drive::{Driver, assert_as_alone, both_depths, limits, prompt, request, sampling};
use octavo_core::{
    EngineLimits, EngineRequest, FinishReason, Kind, RequestId, SamplingParams, StopRules, Token,
};

#[test]
fn requests_together_get_the_tokens_they_get_alone() {
    for limits in both_depths(&limits()) {
        let requests: Vec<_> =
            (0..20).map(|i| request(i, prompt(3 + i as u32 * 4, i as u32), 1 + i as u32)).collect();
        let driver = assert_as_alone(&limits, &requests);
        assert_eq!(driver.engine.stats().finished.length, 20);
        assert_eq!(driver.engine.stats().generated_tokens, (1..=20).sum::<u64>());
    }
}

#[test]
fn tokens_do_not_depend_on_the_chunk_size() {
    for max_num_batched_tokens in [1, 3, 16, 64] {
        for long_prefill_token_threshold in [0, 5] {
            for limits in both_depths(&EngineLimits {
                max_num_batched_tokens,
                long_prefill_token_threshold,
                ..limits()
            }) {
                let requests: Vec<_> = (0..6).map(|i| request(i, prompt(30, i as u32), 9)).collect();
                assert_as_alone(&limits, &requests);
            }
        }
    }
}

#[test]
fn a_pool_too_small_for_all_preempts_and_loses_nothing() {
    for limits in both_depths(&EngineLimits { num_blocks: 16, ..limits() }) {
        let requests: Vec<_> = (0..8).map(|i| request(i, prompt(8, i as u32), 30)).collect();
        let driver = assert_as_alone(&limits, &requests);
        assert!(driver.engine.stats().preemptions > 0);
        assert_eq!(driver.ended[0], 0, "the oldest is never held up");
    }
}

#[test]
fn preemption_keeps_penalties_and_log_probabilities() {
    let sampling = SamplingParams {
        presence_penalty: 0.5,
        repetition_penalty: 1.5,
        logprobs: Some(2),
        prompt_logprobs: Some(1),
        logit_bias: vec![(3, -1.5), (9, 2.0)],
        ..sampling()
    };
    let requests: Vec<_> = (0..8)
        .map(|i| EngineRequest { sampling: sampling.clone(), ..request(i, prompt(8, i as u32), 30) })
        .collect();
    for tight in both_depths(&EngineLimits { num_blocks: 16, max_num_batched_tokens: 6, ..limits() }) {
        let roomy = assert_as_alone(&limits(), &requests);
        let tight = assert_as_alone(&tight, &requests);
        assert!(tight.engine.stats().preemptions > 0);
        for (id, received) in &tight.received {
            assert_eq!(received.logprobs, roomy.received[id].logprobs);
            assert_eq!(received.prompt_logprobs, roomy.received[id].prompt_logprobs);
            assert_eq!(received.logprobs.len(), 30);
            assert_eq!(received.logprobs[0].top.len(), 2);
            let reported: Vec<Token> = received.prompt_logprobs.iter().map(|entry| entry.token).collect();
            assert_eq!(reported, prompt(8, *id as u32)[1..], "every prompt token but the first, once");
        }
    }
}

#[test]
fn one_request_may_use_the_whole_pool() {
    for limits in both_depths(&EngineLimits { num_blocks: 5, watermark: 0.5, ..limits() }) {
        let request = request(1, prompt(20, 1), 100);
        let driver = assert_as_alone(&limits, &[request]);
        assert_eq!(driver.received[&1].tokens.len(), 1, "21 tokens are all that 5 blocks can serve");
    }
}

#[test]
fn a_long_prompt_holds_up_no_decode() {
    for limits in both_depths(&EngineLimits { max_num_batched_tokens: 16, ..limits() }) {
        let mut driver = Driver::new(limits);
        for id in 0..3 {
            driver.add(request(id, prompt(4, id as u32), 60));
        }
        driver.turn();
        driver.turn();
        driver.add(request(9, prompt(150, 9), 1));
        while driver.received[&9].finish.is_none() {
            let before: Vec<_> = (0..3).map(|id| driver.received[&id].tokens.len()).collect();
            driver.turn();
            for id in 0..3 {
                assert_eq!(driver.received[&id].tokens.len(), before[id as usize] + 1);
            }
        }
    }
}

#[test]
fn the_threshold_bounds_a_prompt_and_leaves_room_for_others() {
    let mut driver = Driver::new(EngineLimits { long_prefill_token_threshold: 8, ..limits() });
    driver.add(request(0, prompt(60, 0), 1));
    driver.add(request(1, prompt(8, 1), 1));
    driver.turn();
    assert_eq!(driver.received[&0].finish, None);
    assert_eq!(driver.received[&1].finish, Some(FinishReason::Length));
}

#[test]
fn the_watermark_keeps_blocks_free_for_those_who_run() {
    // 64 blocks of 4 tokens: prompts of 48 tokens take 12 each.
    let admitted = |watermark| {
        let mut driver = Driver::new(EngineLimits { watermark, max_num_batched_tokens: 400, ..limits() });
        for id in 0..6 {
            driver.add(request(id, prompt(48, id as u32), 12));
        }
        driver.turn();
        let running = driver.engine.stats().running;
        driver.run();
        (running, driver.engine.stats().preemptions)
    };
    let (running, preemptions) = admitted(0.0);
    assert_eq!(running, 5);
    assert!(preemptions > 0);
    assert_eq!(admitted(0.25), (4, 0), "16 blocks stay free, enough for what the four generate");
}

fn stopping(id: u64, stop: StopRules) -> EngineRequest {
    EngineRequest { stop, ..request(id, prompt(10, 3), 1) }
}

#[test]
fn stop_tokens_end_a_request_and_min_tokens_holds_them_back() {
    let free = |max_tokens| StopRules {
        max_tokens,
        min_tokens: 0,
        eos_token_ids: Vec::new(),
        stop_token_ids: Vec::new(),
    };
    for limits in both_depths(&limits()) {
        let driver = assert_as_alone(&limits, &[stopping(0, free(40))]);
        let tokens = driver.received[&0].tokens.clone();
        let (eos, stop) = (tokens[5], tokens[7]);

        let requests = [
            stopping(0, StopRules { eos_token_ids: vec![eos], ..free(40) }),
            stopping(1, StopRules { stop_token_ids: vec![stop], ..free(40) }),
            stopping(2, StopRules { eos_token_ids: vec![eos], min_tokens: 20, ..free(40) }),
            stopping(3, StopRules { stop_token_ids: vec![eos], min_tokens: 20, ..free(20) }),
        ];
        let driver = assert_as_alone(&limits, &requests);
        assert_eq!(driver.received[&0].finish, Some(FinishReason::Eos));
        assert_eq!(driver.received[&1].finish, Some(FinishReason::StopToken(stop)));
        assert!(!driver.received[&2].tokens[..20].contains(&eos));
        assert_eq!(driver.received[&3].finish, Some(FinishReason::Length));
    }
}

#[test]
fn a_sequence_ends_at_the_context() {
    for limits in both_depths(&EngineLimits { max_model_len: 32, ..limits() }) {
        let driver = assert_as_alone(&limits, &[request(0, prompt(30, 0), 50)]);
        assert_eq!(driver.received[&0].tokens.len(), 2);
        assert_eq!(driver.received[&0].finish, Some(FinishReason::Length));
    }
}

#[test]
fn an_abort_ends_a_request_wherever_it_is() {
    for limits in both_depths(&EngineLimits { max_num_seqs: 2, ..limits() }) {
        let mut driver = Driver::new(limits);
        for id in 0..4 {
            driver.add(request(id, prompt(20, id as u32), 30));
        }
        driver.turn();
        driver.plan();
        driver.abort(0);
        driver.abort(3);
        driver.abort(3);
        driver.abort(77);
        driver.run();
        for id in [0, 3] {
            assert_eq!(driver.received[&id].finish, Some(FinishReason::Abort));
        }
        for id in [1, 2] {
            driver.assert_as_alone(&request(id, prompt(20, id as u32), 30));
        }
        assert_eq!(driver.engine.stats().finished.abort, 2);
        assert_eq!(driver.engine.stats().finished.total(), 4);
    }
}

#[test]
fn a_full_queue_is_overload_and_an_id_in_use_a_fault() {
    let mut driver = Driver::new(EngineLimits { max_num_queued_reqs: 2, ..limits() });
    driver.add(request(0, prompt(4, 0), 1));
    let error = driver.engine.add(request(0, prompt(4, 0), 1)).unwrap_err();
    assert_eq!(error.kind(), Kind::Internal);
    driver.add(request(1, prompt(4, 0), 1));
    let error = driver.engine.add(request(2, prompt(4, 0), 1)).unwrap_err();
    assert_eq!(error.kind(), Kind::Overloaded);
    driver.run();
    driver.add(request(2, prompt(4, 0), 1));
    driver.run();
}

#[test]
fn a_result_of_another_step_changes_nothing() {
    let mut driver = Driver::new(limits());
    driver.add(request(0, prompt(4, 0), 3));
    let mut events = Vec::new();
    let foreign = octavo_core::frame::Buffer::new(driver.engine.layout().result_bytes);
    assert!(driver.engine.commit(foreign.bytes(), &mut events).unwrap_err().message().contains("in flight"));
    driver.plan();
    assert!(driver.engine.commit(foreign.bytes(), &mut events).unwrap_err().message().contains("magic"));
    assert_eq!((driver.engine.in_flight(), events.len()), (1, 0));
    driver.run();
    driver.assert_as_alone(&request(0, prompt(4, 0), 3));
}

#[test]
fn a_planned_row_whose_request_has_stopped_is_void() {
    let free = driver_tokens(&request(0, prompt(10, 3), 10));
    let stop =
        StopRules { max_tokens: 10, min_tokens: 0, eos_token_ids: vec![free[3]], stop_token_ids: Vec::new() };
    let mut driver = Driver::new(EngineLimits { pipeline_depth: 2, ..limits() });
    driver.add(EngineRequest { stop, ..request(0, prompt(10, 3), 10) });
    while driver.engine.has_work() {
        driver.turn();
    }
    assert_eq!(driver.engine.in_flight(), 1, "the step after the stop was planned before it was known");
    assert!(driver.commit());
    assert_eq!(driver.received[&0].finish, Some(FinishReason::Eos));
    assert_eq!(driver.engine.stats().blocks_used, 0);
    assert_eq!(driver.engine.in_flight(), 0);
}

fn driver_tokens(request: &EngineRequest) -> Vec<Token> {
    let driver = assert_as_alone(&limits(), std::slice::from_ref(request));
    driver.received[&request.id.0].tokens.clone()
}

#[test]
fn both_depths_give_the_same_to_every_request() {
    let requests: Vec<_> = (0..30u64)
        .map(|i| EngineRequest {
            id: RequestId(i),
            sampling: SamplingParams { temperature: 0.7, seed: i, logprobs: Some(1), ..sampling() },
            stop: StopRules {
                max_tokens: 5 + i as u32,
                min_tokens: i as u32 % 4,
                eos_token_ids: vec![1, 2],
                stop_token_ids: vec![30 + i as u32 % 5],
            },
            ..request(i, prompt(5 + i as u32 % 9, i as u32 % 3), 1)
        })
        .collect();
    let [one, two] = both_depths(&EngineLimits { num_blocks: 20, ..limits() })
        .map(|limits| assert_as_alone(&limits, &requests));
    for id in 0..30 {
        let [one, two] = [&one, &two].map(|driver| &driver.received[&id]);
        assert_eq!((&one.tokens, &one.logprobs, one.finish), (&two.tokens, &two.logprobs, two.finish));
    }
}
