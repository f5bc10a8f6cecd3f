//! The policy of fair shares.

mod drive;

use drive::{Driver, assert_as_alone, both_depths, limits, prompt, request};
use octavo_core::{EngineLimits, EngineRequest, Policy};

/// How long a step takes, virtual milliseconds.
const STEP_MS: u64 = 10;

fn from(tenant: u64, id: u64) -> EngineRequest {
    EngineRequest { tenant, ..request(id, prompt(12, id as u32), 12) }
}

/// Sends 20 requests a second of tenant 0 and 2 a second of each of two others
/// for ten seconds, half as much again as the engine can do. Returns the mean time to
/// the last token by tenant, ms.
fn latencies(limits: EngineLimits) -> [u64; 3] {
    let mut driver = Driver::new(limits);
    let (mut now, mut sent) = (0, Vec::new());
    let mut took = [Vec::new(), Vec::new(), Vec::new()];
    let mut ended = 0;
    while now < 10_000 || driver.engine.has_work() {
        if now < 10_000 {
            let heavy = (now % 50 == 0).then_some(0);
            let light = [(now % 500 == 100).then_some(1), (now % 500 == 350).then_some(2)];
            for tenant in light.into_iter().chain([heavy]).flatten() {
                driver.add(from(tenant, sent.len() as u64));
                sent.push((tenant, now));
            }
        }
        driver.turn();
        now += STEP_MS;
        for id in &driver.ended[ended..] {
            let (tenant, at) = sent[*id as usize];
            took[tenant as usize].push(now - at);
        }
        ended = driver.ended.len();
    }
    for (id, (tenant, _)) in sent.iter().enumerate() {
        driver.assert_as_alone(&from(*tenant, id as u64));
    }
    took.map(|took| took.iter().sum::<u64>() / took.len() as u64)
}

#[test]
fn a_tenant_that_sends_ten_times_more_waits_and_the_others_do_not() {
    for limits in both_depths(&EngineLimits { max_num_seqs: 2, ..limits() }) {
        let alone = 13 * STEP_MS;
        let first_come = latencies(EngineLimits { policy: Policy::Fcfs, ..limits.clone() });
        let fair = latencies(EngineLimits { policy: Policy::FairShare, ..limits });
        println!("mean ms to the last token, by tenant: {first_come:?} fcfs, {fair:?} fair, {alone} alone");
        assert!(first_come.iter().all(|&ms| ms > 10 * alone), "all wait: {first_come:?}");
        assert!(fair[0] > 10 * alone, "who sends too much waits: {fair:?}");
        assert!(fair[1].max(fair[2]) < 2 * alone, "the others hardly: {fair:?}, alone {alone}");
    }
}

#[test]
fn backlogged_tenants_get_the_same_tokens_whatever_they_ask() {
    // Tenant 0 asks ten times as often, tenant 1 in prompts and outputs three times as long.
    for limits in both_depths(&EngineLimits {
        policy: Policy::FairShare,
        max_num_seqs: 4,
        max_num_batched_tokens: 16,
        ..limits()
    }) {
        let mut driver = Driver::new(limits);
        for id in 0..300 {
            driver.add(from(0, id));
        }
        for id in 300..330 {
            driver.add(EngineRequest { tenant: 1, ..request(id, prompt(36, id as u32), 36) });
        }
        let mut tokens = [0, 0];
        while driver.ended.len() < 40 {
            driver.turn();
        }
        for (id, received) in &driver.received {
            let prompt_len = if *id < 300 { 12 } else { 36 };
            let computed = received.cached_tokens.map_or(0, |cached| prompt_len - cached as usize);
            tokens[usize::from(*id >= 300)] += computed + received.tokens.len();
        }
        // Never further apart than what may run at once.
        let most = 4 * 72;
        assert!(tokens[0].abs_diff(tokens[1]) <= most, "{tokens:?}");
        assert!(tokens[0] + tokens[1] > 3 * most, "{tokens:?}");
    }
}

#[test]
fn one_tenant_is_served_in_order_of_arrival() {
    let limits = EngineLimits { policy: Policy::FairShare, max_num_seqs: 1, ..limits() };
    let requests: Vec<_> = (0..6).map(|id| from(7, id)).collect();
    assert_eq!(assert_as_alone(&limits, &requests).ended, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_long_prompt_holds_up_no_other_tenant() {
    let limits = EngineLimits { policy: Policy::FairShare, max_num_batched_tokens: 16, ..limits() };
    let mut driver = Driver::new(limits);
    driver.add(EngineRequest { tenant: 1, ..request(0, prompt(160, 0), 1) });
    driver.turn();
    driver.add(EngineRequest { tenant: 2, ..request(1, prompt(12, 1), 1) });
    driver.turn();
    assert_eq!(driver.ended, [1]);
    driver.run();
}

#[test]
fn who_runs_out_of_blocks_keeps_the_token_that_is_on_its_way() {
    // The second fills the last blocks and a whole step, and needs a block more for its next token.
    let pressed = EngineLimits {
        policy: Policy::FairShare,
        num_blocks: 12,
        max_num_batched_tokens: 8,
        max_num_seqs: 2,
        enable_prefix_caching: false,
        ..limits()
    };
    for limits in both_depths(&pressed) {
        let requests =
            [request(1, prompt(40, 1), 4), EngineRequest { tenant: 1, ..request(2, prompt(8, 2), 4) }];
        let mut driver = Driver::new(limits);
        driver.add(requests[0].clone());
        driver.turn();
        driver.add(requests[1].clone());
        for _ in 0..100 {
            driver.turn();
        }
        assert!(!driver.engine.has_work(), "{:?}", driver.engine.stats());
        for request in &requests {
            driver.assert_as_alone(request);
        }
    }
}
