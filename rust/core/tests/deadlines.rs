//! Requests that are given up at a time.

mod drive;

use drive::{Driver, both_depths, limits, prompt, request};
use octavo_core::{Deadlines, EngineLimits, EngineRequest, FinishReason};

fn timed(id: u64, start_ns: Option<u64>, end_ns: Option<u64>) -> EngineRequest {
    EngineRequest { deadlines: Deadlines { start_ns, end_ns }, ..request(id, prompt(8, id as u32), 30) }
}

#[test]
fn who_waits_too_long_ends_and_who_runs_goes_on() {
    for limits in both_depths(&EngineLimits { max_num_seqs: 1, ..limits() }) {
        let mut driver = Driver::new(limits);
        for id in 0..2 {
            driver.add(timed(id, Some(100), None));
        }
        driver.turn();
        driver.expire(99);
        assert_eq!(driver.ended, []);
        driver.expire(100);
        assert_eq!(driver.received[&1].finish, Some(FinishReason::Timeout));
        assert_eq!(driver.received[&1].cached_tokens, None);
        driver.run();
        driver.assert_as_alone(&timed(0, Some(100), None));
        assert_eq!(driver.engine.stats().finished.timeout, 1);
    }
}

#[test]
fn the_end_comes_in_the_middle_of_the_output() {
    for limits in both_depths(&limits()) {
        let mut driver = Driver::new(limits);
        driver.add(timed(0, Some(10), Some(20)));
        driver.add(timed(1, None, None));
        (0..5).for_each(|_| driver.turn());
        driver.expire(20);
        let received = driver.received[&0].clone();
        assert_eq!(received.finish, Some(FinishReason::Timeout));
        let expected = driver.worker.expected(&timed(0, None, None), 200);
        assert!(!received.tokens.is_empty() && expected.starts_with(&received.tokens));
        driver.run();
        driver.assert_as_alone(&timed(1, None, None));
    }
}

#[test]
fn a_request_that_was_preempted_has_started() {
    let mut driver = Driver::new(EngineLimits { num_blocks: 12, ..limits() });
    for id in 0..3 {
        driver.add(timed(id, Some(50), None));
    }
    while driver.engine.stats().preemptions == 0 {
        driver.turn();
    }
    driver.expire(50);
    driver.run();
    for id in 0..3 {
        driver.assert_as_alone(&timed(id, None, None));
    }
}
