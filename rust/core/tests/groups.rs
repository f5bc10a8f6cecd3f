//! Layer groups that keep less than every token.

mod drive;

use drive::{Driver, assert_as_alone, both_depths, limits, prompt, request};
use octavo_core::{EngineLimits, GroupLimits, Keep, Retain};

const WINDOW: GroupLimits = GroupLimits { keep: Keep::Last(10), num_blocks: 24 };
const STATE: GroupLimits = GroupLimits { keep: Keep::State { every: 2 }, num_blocks: 16 };

fn with(groups: impl Into<Vec<GroupLimits>>) -> EngineLimits {
    EngineLimits { groups: groups.into(), ..limits() }
}

/// Runs one request to its end; how many tokens came from the cache.
fn cached(driver: &mut Driver, id: u64, tokens: &[u32]) -> u32 {
    driver.add(request(id, tokens, 6));
    driver.run();
    driver.received[&id].cached_tokens.expect("it started")
}

#[test]
fn a_window_lets_long_sequences_into_few_blocks() {
    // Ten tokens lie in four blocks at most, and the prompt in forty.
    let group = GroupLimits { num_blocks: 4, ..WINDOW };
    for limits in both_depths(&with([group])) {
        let driver = assert_as_alone(&limits, &[request(1, prompt(160, 1), 30)]);
        assert_eq!(driver.engine.stats().preemptions, 0);
    }
}

#[test]
fn a_chunk_is_no_longer_than_the_window_has_blocks_for() {
    let group = GroupLimits { num_blocks: 6, ..WINDOW };
    let mut driver = Driver::new(EngineLimits { max_num_batched_tokens: 100, ..with([group]) });
    driver.add(request(1, prompt(100, 1), 2));
    driver.turn();
    assert_eq!(driver.engine.stats().prompt_tokens_computed, 24);
    driver.run();
}

#[test]
fn who_has_no_room_in_a_group_waits_for_it() {
    let group = GroupLimits { num_blocks: 8, ..WINDOW };
    for limits in both_depths(&with([group])) {
        let requests: Vec<_> = (0..5).map(|id| request(id, prompt(20, id as u32), 20)).collect();
        let mut driver = Driver::new(limits.clone());
        for request in &requests {
            driver.add(request.clone());
        }
        // The first computes its prompt at once, in five blocks, and goes on in four.
        driver.turn();
        driver.turn();
        assert_eq!(driver.engine.stats().running, 2);
        assert!(driver.engine.stats().kv_usage > 0.7, "that of the fullest group");
        driver.run();
        for request in &requests {
            driver.assert_as_alone(request);
        }
    }
}

#[test]
fn sequences_that_grow_within_the_window_preempt() {
    let group = GroupLimits { keep: Keep::Last(40), num_blocks: 14 };
    let limits = with([group]);
    let requests: Vec<_> = (0..4).map(|id| request(id, prompt(8, id as u32), 60)).collect();
    let driver = assert_as_alone(&limits, &requests);
    assert!(driver.engine.stats().preemptions > 0);
}

#[test]
fn a_prefix_is_found_where_its_window_is() {
    let mut driver = Driver::new(with([WINDOW]));
    let long = prompt(60, 1);
    assert_eq!(cached(&mut driver, 1, &long), 0);
    // The last blocks are found again, and so is what they have in common with others.
    assert_eq!(cached(&mut driver, 2, &long), 56);
    let branched = [&long[..40], &prompt(20, 2)].concat();
    assert_eq!(cached(&mut driver, 3, &branched), 40);
    // Others push the window's blocks out, but not the spine's.
    for id in 10..13 {
        cached(&mut driver, id, &prompt(40, id as u32));
    }
    assert!(driver.engine.stats().blocks_cached > 40);
    let found = cached(&mut driver, 4, &long);
    assert!(found < 56, "{found} tokens found");
    driver.assert_as_alone(&request(4, long.clone(), 6));
    // It was computed again, and is there again.
    assert_eq!(cached(&mut driver, 5, &long), 56);
}

#[test]
fn a_state_is_found_at_its_snapshots() {
    // A step that computes a prompt ends at the last snapshot before its end.
    let mut driver = Driver::new(with([STATE]));
    let long = prompt(61, 1);
    assert_eq!(cached(&mut driver, 1, &long), 0);
    assert_eq!(cached(&mut driver, 2, &long), 56);
    // Between snapshots there is none.
    let branched = [&long[..40], &prompt(20, 2)].concat();
    assert_eq!(cached(&mut driver, 3, &branched), 0);
    assert_eq!(cached(&mut driver, 4, &branched), 56);
    for id in 1..5 {
        let tokens = if id < 3 { &long } else { &branched };
        driver.assert_as_alone(&request(id, tokens.clone(), 6));
    }
}

#[test]
fn outputs_are_found_at_their_snapshots_too() {
    for limits in both_depths(&with([WINDOW, STATE])) {
        let mut driver = Driver::new(limits);
        let first = prompt(30, 1);
        driver.add(request(1, first.clone(), 50));
        driver.run();
        let turn = [&first[..], &driver.received[&1].tokens, &prompt(9, 3)].concat();
        // 79 of the first 80 tokens were computed.
        assert_eq!(cached(&mut driver, 2, &turn), 72);
    }
}

#[test]
fn a_state_is_shared_and_nobody_writes_into_it() {
    // Room for three states: that of the prefix and two that go on from it.
    let group = GroupLimits { num_blocks: 3, ..STATE };
    for limits in both_depths(&with([group])) {
        let mut driver = Driver::new(limits);
        let prefix = prompt(16, 1);
        cached(&mut driver, 1, &[&prefix[..], &[7]].concat());
        let requests: Vec<_> =
            (2..6).map(|id| request(id, [&prefix[..], &[id as u32]].concat(), 30)).collect();
        for request in &requests {
            driver.add(request.clone());
        }
        driver.run();
        for request in &requests {
            driver.assert_as_alone(request);
        }
        assert_eq!(driver.received[&2].cached_tokens, Some(16));
    }
}

#[test]
fn one_state_is_enough_for_one_sequence() {
    let group = GroupLimits { num_blocks: 1, ..STATE };
    for limits in both_depths(&with([group])) {
        let requests: Vec<_> = (0..3).map(|id| request(id, prompt(20, 1), 30)).collect();
        assert_as_alone(&limits, &requests);
    }
}

#[test]
fn blocks_of_a_fixed_size_are_held_from_first_to_last() {
    let group = GroupLimits { keep: Keep::Fixed(5), num_blocks: 11 };
    let limits = with([group]);
    let mut driver = Driver::new(limits);
    for id in 0..4 {
        driver.add(request(id, prompt(10, 1), 20));
    }
    driver.turn();
    assert_eq!(driver.engine.stats().running, 1, "the others wait for the prefix of the first");
    driver.turn();
    assert_eq!(driver.engine.stats().running, 2);
    driver.run();
}

#[test]
fn a_dead_worker_voids_all_groups() {
    for limits in both_depths(&with([WINDOW, STATE])) {
        let mut driver = Driver::new(limits);
        let requests: Vec<_> = (0..4).map(|id| request(id, prompt(40, id as u32 % 2), 30)).collect();
        for request in &requests {
            driver.add(request.clone());
        }
        for _ in 0..9 {
            driver.turn();
        }
        driver.kill_worker();
        driver.run();
        for request in &requests {
            driver.assert_as_alone(request);
        }
    }
}

#[test]
fn kept_prefixes_keep_their_windows() {
    let mut driver = Driver::new(with([WINDOW]));
    let kept = prompt(40, 1);
    let mut first = request(1, kept.clone(), 6);
    first.retain = vec![Retain { tokens: 36, ttl_ns: 1000 }];
    driver.add(first);
    driver.run();
    for id in 10..16 {
        cached(&mut driver, id, &prompt(60, id as u32));
    }
    assert_eq!(cached(&mut driver, 2, &kept), 36);
    // Its time over, it goes as all others do.
    driver.expire(2000);
    for id in 20..26 {
        cached(&mut driver, id, &prompt(60, id as u32));
    }
    assert_eq!(cached(&mut driver, 3, &kept), 0);
}

#[test]
fn a_group_too_small_for_a_sequence_shortens_the_context() {
    let group = GroupLimits { keep: Keep::Last(100), num_blocks: 10 };
    let limits = with([group]);
    assert_eq!(limits.context_len(), 41);
    let mut driver = Driver::new(limits);
    let error = driver.engine.add(request(1, prompt(41, 1), 4)).unwrap_err();
    assert!(error.message().contains("needs 11 KV blocks of 4 tokens, but the device has 10"), "{error}");
    driver.add(request(2, prompt(40, 1), 4));
    driver.run();
}

#[test]
fn groups_that_make_no_sense_are_refused() {
    let message = |limits: EngineLimits| limits.check().unwrap_err().message().to_owned();
    let bad = GroupLimits { keep: Keep::Last(0), num_blocks: 3 };
    assert!(message(with([bad])).contains("layer group 1"));
    let small = GroupLimits { keep: Keep::Fixed(9), num_blocks: 3 };
    assert!(message(with([WINDOW, small])).contains("layer group 2 has 3 blocks and each sequence needs 9"));
    let tiers = EngineLimits { host_blocks: 4, ..with([WINDOW]) };
    assert!(message(tiers).contains("several layer groups"));
}
