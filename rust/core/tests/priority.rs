//! The priority policy.

mod drive;

use drive::{Driver, assert_as_alone, both_depths, limits, prompt, request};
use octavo_core::{EngineLimits, EngineRequest, Policy};

fn urgent(id: u64, priority: i32, len: u32, max_tokens: u32) -> EngineRequest {
    EngineRequest { priority, ..request(id, prompt(len, id as u32), max_tokens) }
}

#[test]
fn lower_numbers_run_first_and_equals_in_order_of_arrival() {
    let limits = EngineLimits { policy: Policy::Priority, max_num_seqs: 1, ..limits() };
    let requests: Vec<_> =
        [5, 0, -3, 0].into_iter().enumerate().map(|(id, p)| urgent(id as u64, p, 8, 3)).collect();
    assert_eq!(assert_as_alone(&limits, &requests).ended, [2, 1, 3, 0]);
    let fcfs = EngineLimits { policy: Policy::Fcfs, ..limits };
    assert_eq!(assert_as_alone(&fcfs, &requests).ended, [0, 1, 2, 3]);
}

#[test]
fn an_urgent_request_takes_a_slot_from_a_lesser_one() {
    for limits in both_depths(&EngineLimits { policy: Policy::Priority, max_num_seqs: 2, ..limits() }) {
        let mut driver = Driver::new(limits);
        let requests = [urgent(0, 1, 8, 40), urgent(1, 2, 8, 40), urgent(2, 0, 8, 4), urgent(3, 2, 8, 4)];
        driver.add(requests[0].clone());
        driver.add(requests[1].clone());
        driver.turn();
        driver.turn();
        driver.add(requests[2].clone());
        driver.add(requests[3].clone());
        driver.run();
        assert_eq!(driver.engine.stats().preemptions, 1);
        assert_eq!(driver.ended[0], 2);
        for request in &requests {
            driver.assert_as_alone(request);
        }
    }
}

#[test]
fn an_urgent_request_takes_blocks_only_if_they_suffice() {
    let limits = EngineLimits { policy: Policy::Priority, num_blocks: 20, max_model_len: 80, ..limits() };
    let mut driver = Driver::new(limits);
    // Nine blocks are held by an equal, so a prompt of twelve has to wait.
    driver.add(urgent(0, 0, 36, 4));
    driver.add(urgent(1, 9, 20, 10));
    driver.turn();
    driver.add(urgent(2, 0, 48, 1));
    driver.turn();
    assert_eq!(driver.engine.stats().preemptions, 0);
    driver.run();
    for request in [urgent(0, 0, 36, 4), urgent(1, 9, 20, 10), urgent(2, 0, 48, 1)] {
        driver.assert_as_alone(&request);
    }
}
