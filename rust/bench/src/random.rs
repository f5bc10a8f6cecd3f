//! Randomness that is a function of its place, never of what was drawn before.

use rand::SeedableRng;
use rand::rngs::StdRng;

/// What a stream of random numbers is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A conversation's lengths and tokens; a request's own tokens.
    Request = 1,
    /// A shared prefix.
    Prefix = 2,
    /// Arrival times.
    Arrivals = 3,
    /// What a request is like: lengths, priority, abort.
    Shape = 4,
}

/// The stream of random numbers of (seed, purpose, index).
pub fn stream(seed: u64, purpose: Purpose, index: u64) -> StdRng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&(purpose as u64).to_le_bytes());
    key[16..24].copy_from_slice(&index.to_le_bytes());
    StdRng::from_seed(key)
}
