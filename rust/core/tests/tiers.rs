//! What the device gives up is found again on the host and on disk.

#![allow(clippy::unwrap_used, reason = "tests may")]

mod drive;

use drive::{Driver, both_depths, limits, prompt, request, sampling};
use octavo_core::{CachedTokens, EngineLimits, EngineRequest, Kind, RequestId, SamplingParams};

/// 12 blocks of 4 tokens on the device, 40 on the host.
fn small() -> EngineLimits {
    EngineLimits { num_blocks: 12, host_blocks: 40, max_model_len: 48, ..limits() }
}

fn with_disk() -> EngineLimits {
    EngineLimits { disk_tier: true, ..small() }
}

/// Uses the whole device, so that nothing else stays on it.
fn displace(driver: &mut Driver, id: u64) {
    driver.add(request(id, prompt(40, id as u32 + 20), 7));
    driver.run();
}

fn cached(driver: &Driver, id: u64) -> u32 {
    driver.received[&id].cached_tokens.unwrap()
}

#[test]
fn a_prefix_that_the_device_gave_up_comes_back_from_the_host() {
    for limits in both_depths(&small()) {
        let mut driver = Driver::new(limits);
        let asked = |id| request(id, prompt(33, 1), 5);
        driver.add(asked(0));
        driver.run();
        displace(&mut driver, 1);
        driver.add(asked(2));
        driver.run();
        assert_eq!(cached(&driver, 2), 32);
        assert_eq!(driver.engine.stats().host_hit_tokens, 32);
        driver.assert_as_alone(&asked(2));
    }
}

#[test]
fn nothing_is_loaded_where_computing_is_cheaper() {
    let mut driver = Driver::new(EngineLimits { host_load_tokens: 4.0, ..small() });
    driver.add(request(0, prompt(33, 1), 5));
    driver.run();
    displace(&mut driver, 1);
    driver.add(request(2, prompt(33, 1), 5));
    driver.run();
    assert_eq!(cached(&driver, 2), 0);
}

#[test]
fn a_preempted_sequence_comes_back_from_the_host() {
    for limits in both_depths(&EngineLimits { num_blocks: 14, host_blocks: 64, ..small() }) {
        let mut driver = Driver::new(limits);
        let requests: Vec<_> = (0..4).map(|id| request(id, prompt(9, id as u32), 30)).collect();
        for request in &requests {
            driver.add(request.clone());
        }
        driver.run();
        let stats = driver.engine.stats();
        assert!(stats.preemptions > 0);
        assert!(stats.host_hit_tokens > 0);
        for request in &requests {
            driver.assert_as_alone(request);
        }
    }
}

#[test]
fn host_memory_outlives_the_worker() {
    for limits in both_depths(&small()) {
        let mut driver = Driver::new(limits);
        driver.add(request(0, prompt(33, 1), 5));
        driver.run();
        displace(&mut driver, 1);
        // Planned, but never done: its copies are void.
        driver.add(request(2, prompt(40, 5), 7));
        driver.plan();
        driver.kill_worker();
        driver.run();
        driver.add(request(3, prompt(33, 1), 5));
        driver.run();
        assert_eq!(cached(&driver, 3), 32);
        for request in [request(2, prompt(40, 5), 7), request(3, prompt(33, 1), 5)] {
            driver.assert_as_alone(&request);
        }
    }
}

#[test]
fn prompt_logprobs_are_computed_whatever_the_host_has() {
    let mut driver = Driver::new(small());
    driver.add(request(0, prompt(33, 1), 5));
    driver.run();
    displace(&mut driver, 1);
    let sampling = SamplingParams { prompt_logprobs: Some(1), ..sampling() };
    driver.add(EngineRequest { sampling, ..request(2, prompt(33, 1), 5) });
    driver.run();
    assert_eq!((cached(&driver, 2), driver.received[&2].prompt_logprobs.len()), (0, 32));
}

#[test]
fn a_restart_finds_its_prefixes_on_disk() {
    for limits in both_depths(&with_disk()) {
        let mut first = Driver::new(limits.clone());
        first.add(request(0, prompt(33, 1), 5));
        first.run();
        // Nothing was evicted; idle steps write through.
        while first.plan() || first.commit() || first.transfer() {}
        assert_eq!(first.engine.stats().disk_blocks, 9);

        let files = std::mem::take(&mut first.disk.files);
        let mut second = Driver::with_disk(limits, files);
        second.add(request(1, prompt(33, 1), 5));
        second.add(request(2, prompt(9, 4), 5));
        second.turn();
        second.turn();
        assert!(second.received[&2].cached_tokens.is_some(), "others do not wait for the disk");
        assert_eq!(second.received[&1].cached_tokens, None);
        second.run();
        assert_eq!(cached(&second, 1), 32);
        second.assert_as_alone(&request(1, prompt(33, 1), 5));
    }
}

#[test]
fn what_cannot_be_read_is_computed() {
    let mut first = Driver::new(with_disk());
    first.add(request(0, prompt(33, 1), 5));
    first.run();
    while first.plan() || first.commit() || first.transfer() {}
    let mut second = Driver::with_disk(with_disk(), std::mem::take(&mut first.disk.files));
    second.disk.fails_every = 4;
    second.add(request(1, prompt(33, 1), 5));
    second.run();
    assert_eq!(cached(&second, 1), 12, "three blocks, and the fourth was damaged");
    second.assert_as_alone(&request(1, prompt(33, 1), 5));
}

#[test]
fn a_disk_that_hangs_holds_nobody_for_ever() {
    let mut first = Driver::new(with_disk());
    first.add(request(0, prompt(33, 1), 5));
    first.run();
    while first.plan() || first.commit() || first.transfer() {}
    let mut second = Driver::with_disk(with_disk(), std::mem::take(&mut first.disk.files));
    second.add(request(1, prompt(33, 1), 5));
    assert!(!second.plan());
    second.expire(10_000_000_000);
    assert!(second.plan());
    second.run();
    second.assert_as_alone(&request(1, prompt(33, 1), 5));
}

#[test]
fn a_reset_empties_every_tier() {
    let mut driver = Driver::new(with_disk());
    driver.add(request(0, prompt(33, 1), 5));
    driver.run();
    displace(&mut driver, 1);
    while driver.plan() || driver.commit() || driver.transfer() {}
    driver.engine.reset_prefix_cache();
    while driver.transfer() {}
    let stats = driver.engine.stats();
    assert_eq!((stats.host_blocks_used, stats.disk_blocks, driver.disk.files.len()), (0, 0, 0));
    driver.add(request(2, prompt(33, 1), 5));
    driver.run();
    assert_eq!(cached(&driver, 2), 0);
}

#[test]
fn each_tier_is_credited_with_what_it_had() {
    let mut first = Driver::new(with_disk());
    first.add(request(0, prompt(33, 1), 5));
    first.run();
    while first.plan() || first.commit() || first.transfer() {}
    let mut driver = Driver::with_disk(with_disk(), std::mem::take(&mut first.disk.files));
    let mut ask = |id: u64| {
        driver.add(request(id, prompt(33, 1), 5));
        driver.run();
        let cached = driver.received[&id].cached;
        displace(&mut driver, 100 + id);
        (cached, driver.engine.stats())
    };
    let (cached, stats) = ask(0);
    assert_eq!(cached, CachedTokens { disk: 32, ..CachedTokens::default() });
    assert_eq!((stats.disk_hit_tokens, stats.host_loaded_blocks, stats.host_load_us), (32, 8, 8));
    let (cached, stats) = ask(1);
    assert_eq!(cached, CachedTokens { host: 32, ..CachedTokens::default() }, "the host had it by then");
    assert_eq!((stats.host_hit_tokens, stats.disk_hit_tokens, stats.host_loaded_blocks), (64, 32, 16));
    assert_eq!(stats.host_save_us, stats.host_saved_blocks);
    driver.add(request(2, prompt(33, 1), 5));
    driver.run();
    driver.add(request(3, prompt(33, 1), 5));
    driver.run();
    assert_eq!(driver.received[&3].cached, CachedTokens { device: 32, ..CachedTokens::default() });
}

#[test]
fn what_finds_no_place_below_is_counted() {
    let mut driver = Driver::new(EngineLimits { host_blocks: 4, ..small() });
    driver.add(request(0, prompt(33, 1), 5));
    driver.run();
    // The first step takes seven blocks, for which there are four slots; two later ones one each.
    displace(&mut driver, 1);
    let stats = driver.engine.stats();
    assert_eq!((stats.host_saved_blocks, stats.host_saves_failed), (6, 3));
    assert_eq!((stats.host_blocks_used, stats.host_blocks_held), (4, 0));
}

#[test]
fn preempted_requests_are_named() {
    let mut driver = Driver::new(EngineLimits { num_blocks: 14, ..limits() });
    for id in 0..4 {
        driver.add(request(id, prompt(9, id as u32), 30));
    }
    let mut named = Vec::new();
    while driver.engine.has_work() {
        while driver.plan() {
            named.extend_from_slice(driver.engine.preempted());
        }
        driver.commit();
    }
    assert!(named.contains(&RequestId(3)) && !named.contains(&RequestId(0)), "the oldest always advances");
    assert_eq!(named.len() as u64, driver.engine.stats().preemptions);
}

#[test]
fn who_waits_for_a_prefix_on_its_way_is_deferred() {
    let mut driver = Driver::new(EngineLimits { max_num_seqs: 2, ..limits() });
    for id in 0..3 {
        driver.add(request(id, prompt(9, 1), 5));
    }
    driver.plan();
    let stats = driver.engine.stats();
    assert_eq!((stats.running, stats.waiting, stats.waiting_deferred), (1, 2, 2));
    driver.commit();
    driver.plan();
    let stats = driver.engine.stats();
    assert_eq!((stats.running, stats.waiting, stats.waiting_deferred), (2, 1, 0), "one has no slot");
    driver.run();
}

#[test]
fn tiers_that_make_no_sense_are_refused() {
    let without_cache = EngineLimits { enable_prefix_caching: false, ..small() };
    let without_host = EngineLimits { host_blocks: 0, ..with_disk() };
    for (limits, field) in [(without_cache, "host_blocks"), (without_host, "disk_tier")] {
        let error = limits.check().unwrap_err();
        assert_eq!((error.kind(), error.param()), (Kind::Invalid, Some(field)));
    }
}
