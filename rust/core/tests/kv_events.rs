//! Who reads the events knows what the prefix cache has.

mod drive;

use std::collections::HashSet;

use drive::{Driver, both_depths, limits, prompt, request};
use octavo_core::{BlockHash, EngineLimits, KvEvent, Token};

/// A reader of the events.
#[derive(Default)]
struct Router {
    blocks: HashSet<BlockHash>,
    stored: usize,
    cleared: usize,
}

impl Router {
    fn read(&mut self, driver: &mut Driver) {
        let events = driver.engine.take_kv_events();
        assert!(!events.lost);
        for event in events.events {
            match event {
                KvEvent::Stored { block, parent, .. } => {
                    assert!(parent.is_none_or(|parent| self.blocks.contains(&parent)));
                    assert!(self.blocks.insert(block));
                    self.stored += 1;
                }
                KvEvent::Removed { block } => assert!(self.blocks.remove(&block)),
                KvEvent::Cleared => {
                    self.blocks.clear();
                    self.cleared += 1;
                }
            }
        }
    }

    /// Tokens of a prompt that the cache has, one at least being left.
    fn cached(&self, prompt: &[Token]) -> u32 {
        let mut parent = BlockHash::root(0);
        let blocks = prompt[..prompt.len() - 1].chunks_exact(4).take_while(|tokens| {
            parent = parent.child(tokens);
            self.blocks.contains(&parent)
        });
        4 * blocks.count() as u32
    }
}

fn telling() -> EngineLimits {
    EngineLimits { kv_events: true, num_blocks: 24, ..limits() }
}

#[test]
fn a_router_predicts_what_is_cached() {
    for limits in both_depths(&telling()) {
        let mut driver = Driver::new(limits);
        let mut router = Router::default();
        for id in 0..60 {
            let tokens = prompt(9 + (id * 7 % 50) as u32, (id * id % 5) as u32);
            let expected = router.cached(&tokens);
            driver.add(request(id, tokens, 1 + (id % 9) as u32));
            driver.run();
            router.read(&mut driver);
            assert_eq!(driver.received[&id].cached_tokens, Some(expected), "request {id}");
        }
        assert!(router.stored > 3 * router.blocks.len(), "blocks were removed and stored anew");
    }
}

#[test]
fn a_block_is_stored_when_its_step_is_committed() {
    for limits in both_depths(&telling()) {
        let mut driver = Driver::new(limits);
        let mut router = Router::default();
        driver.add(request(0, prompt(16, 1), 2));
        assert!(driver.plan());
        router.read(&mut driver);
        assert_eq!(router.stored, 0);
        driver.commit();
        router.read(&mut driver);
        assert_eq!(router.stored, 4);
    }
}

#[test]
fn a_reset_and_a_death_clear_all() {
    let mut driver = Driver::new(telling());
    let mut router = Router::default();
    for (id, kill) in [(0, false), (1, true)] {
        driver.add(request(id, prompt(16, 1), 3));
        driver.run();
        if kill {
            driver.kill_worker();
        } else {
            driver.engine.reset_prefix_cache();
        }
        router.read(&mut driver);
        assert!(router.blocks.is_empty());
    }
    assert_eq!((router.stored, router.cleared), (8, 2));
}

#[test]
fn nothing_is_collected_unless_it_is_asked_for() {
    let mut driver = Driver::new(limits());
    driver.add(request(0, prompt(16, 1), 3));
    driver.run();
    driver.engine.reset_prefix_cache();
    assert!(driver.engine.take_kv_events().events.is_empty());
}

#[test]
fn who_does_not_read_learns_that_changes_were_lost() {
    let mut driver = Driver::new(telling());
    for id in 0..40 {
        driver.add(request(id, prompt(60, id as u32), 1));
        driver.run();
    }
    let events = driver.engine.take_kv_events();
    assert!(events.lost && events.events.len() < 100, "{}", events.events.len());
    assert!(!driver.engine.take_kv_events().lost);
}
