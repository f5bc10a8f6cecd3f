//! First come, first served.

use super::queue::{Candidate, Order, Rank};

/// Ranks by arrival alone.
#[derive(Debug)]
pub struct FirstCome;

impl Order for FirstCome {
    fn rank(&mut self, candidate: Candidate) -> Rank {
        Rank { class: 0, arrival: candidate.arrival }
    }

    fn displaces(&self, _waiting: Rank, _running: Rank) -> bool {
        false
    }
}
