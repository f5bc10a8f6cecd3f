//! A request outlives its worker.

mod drive;

use drive::{Driver, both_depths, limits, prompt, request, sampling};
use octavo_core::{EngineLimits, EngineRequest, SamplingParams};

fn requests() -> Vec<EngineRequest> {
    (0..12u64)
        .map(|i| EngineRequest {
            sampling: SamplingParams {
                temperature: 1.0,
                seed: i,
                frequency_penalty: if i % 2 == 0 { 0.3 } else { 0.0 },
                logprobs: Some(1),
                prompt_logprobs: (i % 3 == 0).then_some(1),
                ..sampling()
            },
            ..request(i, prompt(6 + i as u32, i as u32 / 4), 25)
        })
        .collect()
}

#[test]
fn streams_go_on_with_the_tokens_they_would_have_had() {
    for limits in both_depths(&EngineLimits { num_blocks: 30, max_num_batched_tokens: 20, ..limits() }) {
        let mut calm = Driver::new(limits.clone());
        let mut driver = Driver::new(limits);
        for request in requests() {
            calm.add(request.clone());
            driver.add(request);
        }
        calm.run();
        for turn in 1.. {
            driver.turn();
            if turn % 6 == 0 {
                driver.plan();
                driver.kill_worker();
                assert_eq!(driver.engine.in_flight(), 0);
                assert_eq!(driver.engine.stats().blocks_used, 0);
            }
            if !driver.engine.has_work() {
                assert!(turn > 12, "the worker was killed more than once");
                break;
            }
        }
        driver.run();
        for request in requests() {
            driver.assert_as_alone(&request);
            let (got, expected) = (&driver.received[&request.id.0], &calm.received[&request.id.0]);
            assert_eq!(got.logprobs, expected.logprobs);
            assert_eq!(got.prompt_logprobs, expected.prompt_logprobs);
        }
    }
}
