//! The prefix cache: who shares, who may not, and what is never served.

mod drive;

use drive::{Driver, assert_as_alone, both_depths, limits, prompt, request, sampling};
use octavo_core::fake::FakeWorker;
use octavo_core::{EngineLimits, EngineRequest, FinishReason, SamplingParams, Token};

fn cached(driver: &Driver, id: u64) -> u32 {
    driver.received[&id].cached_tokens.expect("it started")
}

#[test]
fn a_prompt_seen_before_comes_from_the_cache_but_for_its_last_token() {
    for limits in both_depths(&limits()) {
        let mut driver = Driver::new(limits);
        for (id, len) in [(0, 20), (1, 20), (2, 21), (3, 19)] {
            driver.add(request(id, prompt(len, 5), 3));
            driver.run();
            driver.assert_as_alone(&request(id, prompt(len, 5), 3));
        }
        // Blocks of 4 tokens: of 20, 21 and 19 tokens 16, 20 and 16 can be read.
        assert_eq!([0, 1, 2, 3].map(|id| cached(&driver, id)), [0, 16, 20, 16]);
        let stats = driver.engine.stats();
        assert_eq!(stats.prefix_query_tokens, 80);
        assert_eq!((stats.prefix_hit_tokens, stats.prompt_tokens_cached), (52, 52));
        assert_eq!(stats.prompt_tokens_computed, 28);
        assert!(stats.blocks_cached > 0);
    }
}

#[test]
fn a_conversation_finds_its_own_output() {
    for limits in both_depths(&limits()) {
        let mut driver = Driver::new(limits);
        let first = request(0, prompt(16, 5), 20);
        driver.add(first.clone());
        driver.run();
        let mut tokens: Vec<Token> = first.prompt.to_vec();
        tokens.extend(&driver.received[&0].tokens);
        tokens.extend(prompt(9, 8));
        let second = request(1, tokens, 3);
        driver.add(second.clone());
        driver.run();
        driver.assert_as_alone(&second);
        // 35 tokens were computed: all but the last sampled one.
        assert_eq!(cached(&driver, 1), 32);
    }
}

#[test]
fn another_salt_shares_nothing() {
    let mut driver = Driver::new(limits());
    for (id, cache_salt) in [(0, 1), (1, 2), (2, 1)] {
        driver.add(EngineRequest { cache_salt, ..request(id, prompt(20, 5), 3) });
        driver.run();
    }
    assert_eq!([0, 1, 2].map(|id| cached(&driver, id)), [0, 0, 16]);
}

#[test]
fn without_caching_nothing_is_kept() {
    let mut driver = Driver::new(EngineLimits { enable_prefix_caching: false, ..limits() });
    for id in 0..2 {
        driver.add(request(id, prompt(20, 5), 3));
        driver.run();
    }
    assert_eq!(cached(&driver, 1), 0);
    assert_eq!(driver.engine.stats().blocks_cached, 0);
}

#[test]
fn requests_that_arrive_together_compute_their_prefix_once() {
    for limits in both_depths(&EngineLimits { max_num_batched_tokens: 24, ..limits() }) {
        let mut requests = Vec::new();
        for id in 0..6 {
            let mut tokens = prompt(80, 5);
            tokens.extend(prompt(5, 20 + id as u32));
            requests.push(request(id, tokens, 4));
        }
        // One that shares nothing overtakes those that wait for the prefix.
        requests.push(request(6, prompt(4, 40), 4));
        let driver = assert_as_alone(&limits, &requests);
        assert_eq!(driver.engine.stats().prompt_tokens_computed, 80 + 6 * 5 + 4);
        assert!((1..6).all(|id| cached(&driver, id) == 80));
        assert!(driver.ended.iter().position(|&id| id == 6) < driver.ended.iter().position(|&id| id == 1));
    }
}

#[test]
fn a_request_shares_what_another_is_still_computing() {
    for limits in both_depths(&EngineLimits { max_num_batched_tokens: 16, ..limits() }) {
        let mut driver = Driver::new(limits);
        driver.add(request(0, prompt(80, 5), 30));
        driver.turn();
        driver.turn();
        driver.add(request(1, prompt(80, 5), 4));
        driver.run();
        assert_eq!(cached(&driver, 1), 76);
        assert_eq!(driver.ended, [1, 0]);
    }
}

#[test]
fn a_prompt_that_is_its_own_twin_is_kept_once() {
    let mut driver = Driver::new(limits());
    for id in 0..2 {
        driver.add(request(id, prompt(16, 5), 3));
        driver.run();
    }
    // The second computed the last block again and dropped it for the first's.
    assert_eq!(driver.engine.stats().blocks_cached, 4);
}

#[test]
fn prompt_log_probabilities_are_computed_not_cached() {
    let asking = |id| EngineRequest {
        sampling: SamplingParams { prompt_logprobs: Some(0), ..sampling() },
        ..request(id, prompt(20, 5), 8)
    };
    for limits in both_depths(&limits()) {
        let mut driver = Driver::new(limits);
        for id in 0..2 {
            driver.add(asking(id));
            driver.run();
            driver.assert_as_alone(&asking(id));
            assert_eq!(cached(&driver, id), 0);
            assert_eq!(driver.received[&id].prompt_logprobs.len(), 19);
        }
        assert_eq!(driver.received[&0].prompt_logprobs, driver.received[&1].prompt_logprobs);
    }
}

#[test]
fn memory_that_is_not_finite_is_never_served() {
    for limits in both_depths(&limits()) {
        let mut driver = Driver::new(limits);
        driver.worker = FakeWorker::new(driver.engine.limits()).with_poison(49);
        let clean: Vec<Token> = prompt(12, 5).iter().map(|token| token % 49).collect();
        let mut bad = clean.clone();
        bad.push(49);
        bad.extend(&clean);
        driver.add(request(0, clean.clone(), 1));
        driver.run();
        driver.add(request(1, bad.clone(), 3));
        driver.run();
        assert_eq!(driver.received[&1].finish, Some(FinishReason::Error));
        assert_eq!(driver.received[&1].tokens, []);
        assert_eq!(driver.engine.stats().finished.error, 1);
        // Nothing of it is left, and what it had shared is computed again.
        driver.worker = FakeWorker::new(driver.engine.limits());
        driver.kill_worker();
        driver.add(request(2, bad.clone(), 3));
        driver.run();
        assert_eq!(cached(&driver, 2), 0);
    }
}

#[test]
fn a_failure_after_the_end_empties_the_cache() {
    let tokens = assert_as_alone(&limits(), &[request(0, prompt(10, 3), 10)]).received[&0].tokens.clone();
    let mut driver = Driver::new(EngineLimits { pipeline_depth: 2, ..limits() });
    driver.worker = FakeWorker::new(driver.engine.limits()).with_poison(tokens[3]);
    let mut last = request(0, prompt(10, 3), 10);
    last.stop.eos_token_ids = vec![tokens[3]];
    driver.add(last);
    while driver.engine.has_work() {
        driver.turn();
    }
    assert_eq!(driver.received[&0].finish, Some(FinishReason::Eos));
    assert!(driver.engine.stats().blocks_cached > 0);
    // The step in flight computes the stop token, for nobody, and fails.
    assert!(driver.commit());
    assert_eq!(driver.engine.stats().blocks_cached, 0);
}

#[test]
fn the_cache_gives_way_to_requests_oldest_first() {
    // Seven blocks are needed and four are free: three of the first prompt's
    // four go, its tail first, and the second prompt stays.
    for (seed, expected) in [(0, 4), (1, 12)] {
        let mut driver = Driver::new(EngineLimits { num_blocks: 12, ..limits() });
        for (id, len) in [(0, 16), (1, 16), (7, 28)] {
            driver.add(request(id, prompt(len, id as u32), 1));
            driver.run();
        }
        driver.add(request(9, prompt(16, seed), 1));
        driver.run();
        assert_eq!(cached(&driver, 9), expected);
    }
}

#[test]
fn a_reset_forgets_every_prefix() {
    let mut driver = Driver::new(limits());
    driver.add(request(0, prompt(20, 5), 3));
    driver.run();
    assert!(driver.engine.reset_prefix_cache());
    assert_eq!(driver.engine.stats().blocks_cached, 0);
    driver.add(request(1, prompt(20, 5), 8));
    driver.turn();
    assert!(!driver.engine.reset_prefix_cache(), "a running request held cached blocks");
    driver.check();
    driver.run();
    driver.assert_as_alone(&request(1, prompt(20, 5), 8));
    assert_eq!(driver.engine.stats().blocks_cached, 0);
}
