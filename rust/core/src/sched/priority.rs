//! Lower priority numbers first, first come among equals.

use super::queue::{Candidate, Order, Rank};

/// Ranks by priority; a waiting request displaces a running one of a strictly
/// higher number.
#[derive(Debug)]
pub struct ByPriority;

impl Order for ByPriority {
    fn rank(&mut self, candidate: Candidate) -> Rank {
        Rank { class: i64::from(candidate.priority), arrival: candidate.arrival }
    }

    fn displaces(&self, waiting: Rank, running: Rank) -> bool {
        waiting.class < running.class
    }
}
