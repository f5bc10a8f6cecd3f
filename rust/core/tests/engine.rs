//! The engine as a door sees it.

mod drive;

use drive::{Driver, limits, request};
use octavo_core::{EngineLimits, EngineRequest, Token};

fn prompt(len: u32, seed: u32) -> Vec<Token> {
    (0..len).map(|i| (i * 7 + seed * 13 + i * i % 11) % 50).collect()
}

fn both_depths(limits: &EngineLimits) -> [EngineLimits; 2] {
    [1, 2].map(|pipeline_depth| EngineLimits { pipeline_depth, ..limits.clone() })
}

/// Runs the requests together and compares each with its run alone.
fn assert_as_alone(limits: &EngineLimits, requests: &[EngineRequest]) -> Driver {
    let mut driver = Driver::new(limits.clone());
    for request in requests {
        driver.add(request.clone());
    }
    driver.run();
    for request in requests {
        let expected = driver.worker.expected(request, limits.context_len() as usize);
        let received = &driver.received[&request.id.0];
        assert_eq!(received.tokens, expected, "request {}", request.id.0);
    }
    driver
}

#[test]
fn requests_together_get_the_tokens_they_get_alone() {
    for limits in both_depths(&limits()) {
        let requests: Vec<_> =
            (0..20).map(|i| request(i, prompt(3 + i as u32 * 4, i as u32), 1 + i as u32)).collect();
        let driver = assert_as_alone(&limits, &requests);
        assert_eq!(driver.engine.stats().finished.length, 20);
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
