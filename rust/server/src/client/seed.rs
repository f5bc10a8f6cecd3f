//! Seeds of single choices.

use std::sync::atomic::{AtomicU64, Ordering};

/// Where the seeds of requests without one come from.
#[derive(Debug)]
pub(super) struct Seeds {
    start: Option<u64>,
    given: AtomicU64,
}

impl Seeds {
    /// With `start` the same calls in the same order get the same seeds; without,
    /// they are drawn.
    pub fn new(start: Option<u64>) -> Self {
        Self { start, given: AtomicU64::new(0) }
    }

    /// A seed for a request without one.
    pub fn fresh(&self) -> u64 {
        match self.start {
            Some(start) => mix(start.wrapping_add(mix(self.given.fetch_add(1, Ordering::Relaxed)))),
            None => rand::random(),
        }
    }
}

/// The seed of one choice: choice 0 has the request's own, so that its tokens
/// do not depend on `n`.
pub(super) fn of_choice(seed: u64, choice: u32) -> u64 {
    if choice == 0 { seed } else { mix(seed ^ mix(u64::from(choice))) }
}

/// The output function of SplitMix64 (Steele, Lea and Flood, 2014).
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_of_one_seed_differ_and_the_first_keeps_it() {
        let seeds: Vec<u64> = (0..100).map(|choice| of_choice(7, choice)).collect();
        assert_eq!(seeds[0], 7);
        let distinct: std::collections::HashSet<_> = seeds.iter().collect();
        assert_eq!(distinct.len(), 100);
    }

    #[test]
    fn a_start_makes_fresh_seeds_repeatable() {
        let (a, b) = (Seeds::new(Some(0)), Seeds::new(Some(0)));
        let first: Vec<u64> = (0..10).map(|_| a.fresh()).collect();
        assert_eq!(first, (0..10).map(|_| b.fresh()).collect::<Vec<_>>());
        assert_ne!(Seeds::new(None).fresh(), Seeds::new(None).fresh());
    }
}
