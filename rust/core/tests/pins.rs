//! Prefixes that requests ask to keep: what outlives what, for how long, and
//! that nobody waits for them.

mod drive;

use drive::{Driver, both_depths, limits, prompt, request};
use octavo_core::{EngineLimits, EngineRequest, Retain};

/// Room for twelve blocks of four tokens.
fn small() -> EngineLimits {
    EngineLimits { num_blocks: 12, ..limits() }
}

/// 16 tokens, four blocks, which `ttl_ns` keeps.
fn kept(id: u64, seed: u32, ttl_ns: u64) -> EngineRequest {
    EngineRequest { retain: vec![Retain { tokens: 16, ttl_ns }], ..request(id, prompt(16, seed), 1) }
}

fn run(driver: &mut Driver, request: EngineRequest) {
    driver.add(request);
    driver.run();
}

/// Tokens of the 16-token prompt `seed` that the cache has; 12 is all it can give.
fn cached(driver: &mut Driver, seed: u32) -> u32 {
    let id = driver.received.len() as u64;
    run(driver, request(id, prompt(16, seed), 1));
    driver.received[&id].cached_tokens.expect("it started")
}

/// Takes ten blocks and gives them back.
fn press(driver: &mut Driver) {
    let id = driver.received.len() as u64;
    run(driver, request(id, prompt(40, 30 + id as u32), 1));
}

#[test]
fn a_kept_prefix_outlives_later_ones() {
    for limits in both_depths(&small()) {
        let mut driver = Driver::new(limits);
        run(&mut driver, kept(0, 0, 100));
        run(&mut driver, request(1, prompt(16, 1), 1));
        assert_eq!(driver.engine.stats().blocks_pinned, 4);
        run(&mut driver, request(2, prompt(28, 7), 1));
        assert_eq!(cached(&mut driver, 0), 12);
        assert_eq!(cached(&mut driver, 1), 0);
    }
}

#[test]
fn nobody_waits_for_kept_prefixes() {
    for limits in both_depths(&EngineLimits { max_pinned_share: 1.0, ..small() }) {
        let mut driver = Driver::new(limits);
        (0..3).for_each(|id| run(&mut driver, kept(id, id as u32, 1000)));
        assert_eq!(driver.engine.stats().blocks_pinned, 12);
        // The least recently used goes first, its tail before its head.
        run(&mut driver, request(3, prompt(20, 9), 1));
        assert_eq!(driver.engine.stats().blocks_pinned, 7);
        assert_eq!(cached(&mut driver, 2), 12);
        let whole = request(9, prompt(48, 5), 1);
        run(&mut driver, whole.clone());
        driver.assert_as_alone(&whole);
        assert_eq!(driver.engine.stats().blocks_pinned, 0);
    }
}

#[test]
fn time_counts_from_the_end_of_the_last_use_that_asks_for_it() {
    for limits in both_depths(&small()) {
        let mut driver = Driver::new(limits);
        driver.expire(50);
        let mut long = kept(0, 0, 100);
        long.stop.max_tokens = 12;
        driver.add(long);
        driver.turn();
        driver.turn();
        driver.expire(120);
        driver.run();
        driver.expire(219);
        assert_eq!(driver.engine.stats().blocks_pinned, 4);
        run(&mut driver, kept(1, 0, 100));
        driver.expire(300);
        // A use that does not ask changes nothing, nor one that asks for less.
        assert_eq!(cached(&mut driver, 0), 12);
        run(&mut driver, kept(3, 0, 5));
        driver.expire(318);
        assert_eq!(driver.engine.stats().blocks_pinned, 4);
        driver.expire(319);
        assert_eq!(driver.engine.stats().blocks_pinned, 0);
        press(&mut driver);
        assert!(cached(&mut driver, 0) < 12);
    }
}

#[test]
fn whole_blocks_of_the_asked_prefix_are_kept() {
    let mut driver = Driver::new(small());
    let mut part = kept(0, 0, 100);
    part.retain = vec![Retain { tokens: 11, ttl_ns: 100 }];
    run(&mut driver, part);
    assert_eq!(driver.engine.stats().blocks_pinned, 2);
    press(&mut driver);
    assert_eq!(cached(&mut driver, 0), 8);
    // More than the prompt is the prompt; less than a block is nothing.
    for (id, tokens, pinned) in [(10, 1000, 4), (11, 3, 4)] {
        let retain = vec![Retain { tokens, ttl_ns: 1 }];
        run(&mut driver, EngineRequest { retain, ..request(id, prompt(16, 0), 2) });
        assert_eq!(driver.engine.stats().blocks_pinned, pinned);
    }
}

#[test]
fn each_prefix_has_its_own_time() {
    for limits in both_depths(&EngineLimits { max_num_batched_tokens: 5, ..small() }) {
        let mut driver = Driver::new(limits);
        let retain = [(4, 300), (8, 100), (16, 200)].map(|(tokens, ttl_ns)| Retain { tokens, ttl_ns });
        run(&mut driver, EngineRequest { retain: retain.to_vec(), ..request(0, prompt(16, 0), 1) });
        for (now_ns, pinned) in [(199, 4), (200, 1), (300, 0)] {
            driver.expire(now_ns);
            assert_eq!(driver.engine.stats().blocks_pinned, pinned, "at {now_ns}");
        }
    }
}

#[test]
fn no_more_than_the_share_is_kept() {
    let mut driver = Driver::new(small());
    run(&mut driver, kept(0, 0, 100));
    run(&mut driver, kept(1, 1, 100));
    let stats = driver.engine.stats();
    assert_eq!((stats.blocks_pinned, stats.pins_refused), (4, 1));
    // One that is kept already needs no more of the share.
    run(&mut driver, kept(2, 0, 200));
    assert_eq!(driver.engine.stats().pins_refused, 1);
    driver.expire(101);
    assert_eq!(driver.engine.stats().blocks_pinned, 4);
}

#[test]
fn a_reset_drops_what_is_kept() {
    let mut driver = Driver::new(small());
    run(&mut driver, kept(0, 0, 100));
    assert!(driver.engine.reset_prefix_cache());
    driver.check();
    assert_eq!(driver.engine.stats().blocks_pinned, 0);
    assert_eq!(cached(&mut driver, 0), 0);
}

#[test]
fn after_the_workers_death_unfinished_requests_keep_theirs_again() {
    for limits in both_depths(&small()) {
        let mut driver = Driver::new(limits);
        run(&mut driver, kept(0, 0, 100));
        driver.add(EngineRequest { retain: kept(1, 1, 100).retain, ..request(1, prompt(16, 1), 6) });
        driver.turn();
        driver.kill_worker();
        assert_eq!(driver.engine.stats().blocks_pinned, 0);
        driver.run();
        assert_eq!(driver.engine.stats().blocks_pinned, 4);
        assert_eq!(cached(&mut driver, 1), 12);
        assert_eq!(cached(&mut driver, 0), 0);
    }
}
