//! The requests that wait, in the order that a policy gives them.

use std::fmt::Debug;

use super::fair::FairShare;
use super::lpm::LongestPrefix;
use super::ranked::Ranked;
use crate::limits::Policy;

/// Place in an order for a request's whole life; lower is served first and
/// preempted last. Unique, for `arrival` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Decides first.
    pub class: i64,
    /// Decides among equals: the count of requests before this one.
    pub arrival: u64,
}

impl Rank {
    /// The rank of whom arrival alone decides.
    pub fn by_arrival(arrival: u64) -> Self {
        Self { class: 0, arrival }
    }
}

/// A request as policies see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// Its place among those that run.
    pub rank: Rank,
    /// The scheduler's number for it.
    pub index: usize,
    /// Who sent it.
    pub tenant: u64,
}

/// A scheduling policy: who of the waiting is next. A new one is a file with
/// one implementation.
pub trait Queue: Debug + Send {
    /// A request's place among those that run.
    fn rank(&self, _priority: i32, arrival: u64) -> Rank {
        Rank::by_arrival(arrival)
    }

    /// Requests that wait.
    fn len(&self) -> usize;

    /// Adds a request; `again` if its turn has come before: it was preempted or
    /// had to wait for its prefix.
    fn push(&mut self, candidate: Candidate, again: bool);

    /// Takes a request out without serving it.
    fn remove(&mut self, candidate: Candidate);

    /// Takes out the first, to be served. Its prompt costs `tokens` tokens of work.
    fn admit(&mut self, candidate: Candidate, tokens: usize) {
        self.charge(candidate.tenant, tokens);
        self.remove(candidate);
    }

    /// Who is next.
    fn first(&mut self) -> Option<Candidate>;

    /// True if the first of the waiting gets its tokens before a running request
    /// that still computes its prompt.
    fn precedes(&self, waiting: Candidate, running: Candidate) -> bool {
        waiting.rank < running.rank
    }

    /// True if a waiting request may take the place of a running one.
    fn displaces(&self, _waiting: Rank, _running: Rank) -> bool {
        false
    }

    /// Work of `tokens` tokens was done for a tenant.
    fn charge(&mut self, _tenant: u64, _tokens: usize) {}

    /// Called before requests are admitted; `cached_tokens` looks up how many
    /// leading tokens of a request are in the prefix cache.
    fn look(&mut self, _cached_tokens: &mut dyn FnMut(usize) -> usize) {}
}

/// The empty queue of a policy.
pub fn queue(policy: Policy, tenant_weights: &[(u64, f32)]) -> Box<dyn Queue> {
    match policy {
        Policy::Fcfs => Box::new(Ranked::by_arrival()),
        Policy::Priority => Box::new(Ranked::by_priority()),
        Policy::LongestPrefix => Box::new(LongestPrefix::default()),
        Policy::FairShare => Box::new(FairShare::new(tenant_weights)),
    }
}
