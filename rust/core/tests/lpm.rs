//! The policy of the longest cached prefix.

mod drive;

use drive::{Driver, assert_as_alone, both_depths, limits, prompt, request};
use octavo_core::{EngineLimits, EngineRequest, Policy, Token};

/// A prompt of 16 tokens that a family shares and 4 of its own.
fn member(id: u64, family: u32) -> EngineRequest {
    let own = (0..4).map(|i| (id as u32 * 3 + i) % 50);
    let tokens: Vec<Token> = prompt(16, family).into_iter().chain(own).collect();
    request(id, tokens, 2)
}

#[test]
fn what_is_cached_goes_first_and_equals_in_order_of_arrival() {
    for limits in both_depths(&EngineLimits { policy: Policy::LongestPrefix, max_num_seqs: 1, ..limits() }) {
        let mut driver = Driver::new(limits);
        driver.add(member(0, 1));
        driver.turn();
        for (id, family) in [(1, 2), (2, 3), (3, 1), (4, 2), (5, 1)] {
            driver.add(member(id, family));
        }
        driver.run();
        // Both of family 1; then 1, whose family's prompt 4 shares after it; then the rest.
        assert_eq!(driver.ended, [0, 3, 5, 1, 4, 2]);
        for (id, family) in [(0, 1), (1, 2), (2, 3), (3, 1), (4, 2), (5, 1)] {
            driver.assert_as_alone(&member(id, family));
        }
    }
}

#[test]
fn fewer_tokens_are_computed_than_in_order_of_arrival() {
    // Four families in turn, and blocks for about two of them.
    let requests: Vec<_> = (0..40)
        .map(|id| {
            let shared = prompt(80, id as u32 % 4);
            request(id, shared.into_iter().chain([id as u32 % 50, 7, 8]).collect::<Vec<_>>(), 2)
        })
        .collect();
    let computed = |policy| {
        let limits = EngineLimits { policy, num_blocks: 48, max_num_seqs: 1, ..limits() };
        assert_as_alone(&limits, &requests).engine.stats().prompt_tokens_computed
    };
    let (fcfs, lpm) = (computed(Policy::Fcfs), computed(Policy::LongestPrefix));
    assert!(2 * lpm < fcfs, "{lpm} tokens with lpm, {fcfs} with fcfs");
}

#[test]
fn a_request_that_nothing_is_cached_of_is_not_passed_over_for_ever() {
    let mut driver = Driver::new(EngineLimits { policy: Policy::LongestPrefix, max_num_seqs: 1, ..limits() });
    driver.add(member(0, 1));
    driver.run();
    driver.add(member(1, 2));
    let mut next = 2;
    // At any time two others wait that have most of their prompt in the cache.
    while driver.received[&1].finish.is_none() {
        while driver.engine.stats().waiting < 3 {
            driver.add(member(next, 1));
            next += 1;
        }
        driver.turn();
        assert!(next < 300, "request 1 starves");
    }
    assert!(driver.ended.len() > 100, "but it had patience: {}", driver.ended.len());
    driver.run();
}
