//! Longest cached prefix first: who has most of its prompt in the prefix cache
//! goes before what it would read is evicted.
//!
//! Only the oldest few are compared, and of these a few a step are looked up
//! anew, so that a step's cost depends neither on the queue nor on the prompts;
//! a match that is a few steps old gives a slightly worse order, nothing else.
//! Nobody starves: who was passed over [`PATIENCE`] times goes first.

use std::collections::BTreeSet;

use super::queue::{Candidate, Queue};

/// Requests that are compared: the oldest.
const WINDOW: usize = 128;
/// Requests in the window that a step looks up anew.
const LOOKS: usize = 8;
/// Requests that may overtake one in the window.
pub const PATIENCE: u64 = 256;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct LongestPrefix {
    /// The oldest, in no order.
    window: Vec<Compared>,
    /// The others by arrival.
    beyond: BTreeSet<Candidate>,
    /// Requests admitted so far.
    admitted: u64,
    /// Where in the window the next look falls.
    cursor: usize,
}

#[derive(Clone, Copy, Debug)]
struct Compared {
    candidate: Candidate,
    /// Tokens that the cache has of it; `None` before the first look.
    cached: Option<usize>,
    /// It goes first once so many requests are admitted.
    due: u64,
}

impl LongestPrefix {
    fn refill(&mut self) {
        while self.window.len() < WINDOW
            && let Some(candidate) = self.beyond.pop_first()
        {
            self.window.push(Compared { candidate, cached: None, due: self.admitted + PATIENCE });
        }
    }
}

impl Queue for LongestPrefix {
    fn len(&self) -> usize {
        self.window.len() + self.beyond.len()
    }

    fn push(&mut self, candidate: Candidate, again: bool) {
        if again {
            // Its turn has come before.
            self.window.push(Compared { candidate, cached: None, due: 0 });
        } else {
            self.beyond.insert(candidate);
            self.refill();
        }
    }

    fn remove(&mut self, candidate: Candidate) {
        match self.window.iter().position(|compared| compared.candidate == candidate) {
            Some(place) => drop(self.window.swap_remove(place)),
            None => drop(self.beyond.remove(&candidate)),
        }
        self.refill();
    }

    fn admit(&mut self, candidate: Candidate, _tokens: usize) {
        self.admitted += 1;
        self.remove(candidate);
    }

    fn first(&mut self) -> Option<Candidate> {
        let place = |compared: &&Compared| {
            let overdue = compared.due <= self.admitted;
            let missing = if overdue { 0 } else { usize::MAX - compared.cached.unwrap_or(0) };
            (!overdue, missing, compared.candidate.rank)
        };
        self.window.iter().min_by_key(place).map(|compared| compared.candidate)
    }

    /// What runs was chosen; only who was preempted goes before it.
    fn precedes(&self, waiting: Candidate, running: Candidate) -> bool {
        let overdue = |compared: &Compared| compared.candidate == waiting && compared.due <= self.admitted;
        waiting.rank < running.rank && self.window.iter().any(overdue)
    }

    fn look(&mut self, cached_tokens: &mut dyn FnMut(usize) -> usize) {
        let len = self.window.len();
        for compared in self.window.iter_mut().filter(|compared| compared.cached.is_none()) {
            compared.cached = Some(cached_tokens(compared.candidate.index));
        }
        for _ in 0..LOOKS.min(len) {
            self.cursor = (self.cursor + 1) % len;
            let compared = &mut self.window[self.cursor];
            compared.cached = Some(cached_tokens(compared.candidate.index));
        }
    }
}
