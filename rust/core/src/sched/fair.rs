//! Fair share of tokens by tenant.
//!
//! Each tenant has a counter of the tokens computed for it, divided by its weight; the waiting request
//! of the tenant with the smallest counter is next (Sheng et al., "Fairness in
//! Serving Large Language Models", OSDI 2024). A prompt is charged when it is
//! admitted, less what the cache has of it; output as it is computed, for its
//! length is not known before.
//!
//! A tenant that comes back starts at the virtual time, so that it saves nothing
//! up while it is away. That time is the largest counter served so far, as in
//! start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996), and moves on by
//! an equal share of each prompt served. So it passes the counter of anyone who
//! waits: new tenants, however many, overtake nobody for ever.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

use super::queue::{Candidate, Queue};

/// Tenants that may be remembered without need.
const SPARE_TENANTS: usize = 1024;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct FairShare {
    tenants: HashMap<u64, Tenant>,
    /// (counter, arrival of a request, tenant) once for each tenant that waits.
    /// Counters only grow, so one that is out of date comes too early and is
    /// put right when it is found at the front.
    front: BinaryHeap<Reverse<(u64, u64, u64)>>,
    /// Where tenants start that had nothing to wait for, as counters.
    virtual_time: u64,
    len: usize,
    /// Of tenants whose weight is not 1.
    weights: HashMap<u64, f32>,
    /// Tenants at which those are forgotten whom the virtual time has passed.
    most_tenants: usize,
}

#[derive(Debug, Default)]
struct Tenant {
    /// Weighted tokens computed, and the virtual time where it was away.
    counter: u64,
    waiting: BTreeSet<Candidate>,
    /// It is in `front`.
    listed: bool,
}

/// Parts of a token that counters count, so that weights leave little over.
const PARTS: f64 = 64.0;

impl FairShare {
    /// No tenant yet; those of `weights` get so many times the share of others.
    pub fn new(weights: &[(u64, f32)]) -> Self {
        Self { weights: weights.iter().copied().collect(), ..Self::default() }
    }

    /// What a tenant is charged for `tokens` tokens.
    fn cost(&self, tenant: u64, tokens: usize) -> u64 {
        let weight = self.weights.get(&tenant).copied().unwrap_or(1.0);
        (tokens as f64 * PARTS / f64::from(weight)).ceil() as u64
    }

    fn tenant(&mut self, tenant: u64) -> &mut Tenant {
        let start = self.virtual_time;
        self.tenants.entry(tenant).or_insert_with(|| Tenant { counter: start, ..Tenant::default() })
    }

    /// Drops tenants who would start anew at the virtual time.
    fn forget_idle(&mut self) {
        if self.tenants.len() <= self.most_tenants.max(SPARE_TENANTS) {
            return;
        }
        let now = self.virtual_time;
        self.tenants.retain(|_, tenant| tenant.listed || tenant.counter > now);
        self.most_tenants = 2 * self.tenants.len();
    }
}

impl Queue for FairShare {
    fn len(&self) -> usize {
        self.len
    }

    fn push(&mut self, candidate: Candidate, again: bool) {
        let start = self.virtual_time;
        let tenant = self.tenant(candidate.tenant);
        if tenant.waiting.is_empty() && !again {
            tenant.counter = tenant.counter.max(start);
        }
        tenant.waiting.insert(candidate);
        if !tenant.listed {
            tenant.listed = true;
            let place = (tenant.counter, candidate.rank.arrival, candidate.tenant);
            self.front.push(Reverse(place));
        }
        self.len += 1;
        self.forget_idle();
    }

    fn remove(&mut self, candidate: Candidate) {
        if self.tenant(candidate.tenant).waiting.remove(&candidate) {
            self.len -= 1;
        }
    }

    fn admit(&mut self, candidate: Candidate, tokens: usize) {
        // One more than those who wait: whoever comes now comes before the
        // tenant that was just served.
        let shares = self.front.len() as u64 + 1;
        let counter = self.tenant(candidate.tenant).counter;
        self.virtual_time =
            self.virtual_time.max(counter) + self.cost(candidate.tenant, tokens).div_ceil(shares);
        self.charge(candidate.tenant, tokens);
        self.remove(candidate);
    }

    fn first(&mut self) -> Option<Candidate> {
        while let Some(Reverse((counter, arrival, number))) = self.front.peek().copied() {
            let tenant = self.tenant(number);
            let Some(&first) = tenant.waiting.first() else {
                tenant.listed = false;
                self.front.pop();
                continue;
            };
            let place = (tenant.counter, first.rank.arrival, number);
            if place == (counter, arrival, number) {
                return Some(first);
            }
            self.front.pop();
            self.front.push(Reverse(place));
        }
        None
    }

    /// A tenant that had less goes before a prompt of one that had more.
    fn precedes(&self, waiting: Candidate, running: Candidate) -> bool {
        let counter = |candidate: Candidate| self.tenants.get(&candidate.tenant).map(|tenant| tenant.counter);
        match (counter(waiting), counter(running)) {
            (Some(waits), Some(runs)) if waiting.tenant != running.tenant => waits < runs,
            _ => waiting.rank < running.rank,
        }
    }

    fn charge(&mut self, tenant: u64, tokens: usize) {
        let cost = self.cost(tenant, tokens);
        self.tenant(tenant).counter += cost;
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue::Rank;
    use super::*;

    fn candidate(arrival: u64, tenant: u64) -> Candidate {
        Candidate { rank: Rank::by_arrival(arrival), index: arrival as usize, tenant }
    }

    fn serve(queue: &mut FairShare, tokens: usize) -> u64 {
        let first = queue.first().expect("somebody waits");
        queue.admit(first, tokens);
        first.tenant
    }

    #[test]
    fn who_was_away_has_saved_nothing_up() {
        let mut queue = FairShare::default();
        for arrival in 0..20 {
            queue.push(candidate(arrival, 1), false);
        }
        for _ in 0..10 {
            assert_eq!(serve(&mut queue, 100), 1);
        }
        for arrival in 20..40 {
            queue.push(candidate(arrival, 2), false);
        }
        let served: Vec<u64> = (0..10).map(|_| serve(&mut queue, 100)).collect();
        assert_eq!(served[0], 2, "the newcomer is next");
        assert_eq!(
            served.iter().filter(|&&tenant| tenant == 2).count(),
            5,
            "then they take turns: {served:?}"
        );
    }

    #[test]
    fn weights_are_shares() {
        let mut queue = FairShare::new(&[(1, 2.0), (2, 0.5)]);
        for arrival in 0..600 {
            queue.push(candidate(arrival, arrival % 3), false);
        }
        let served: Vec<u64> = (0..210).map(|_| serve(&mut queue, 100)).collect();
        let count = |tenant| served.iter().filter(|&&served| served == tenant).count();
        assert_eq!([count(0), count(1), count(2)], [60, 120, 30]);
    }

    #[test]
    fn new_tenants_without_end_overtake_nobody_for_ever() {
        let mut queue = FairShare::default();
        queue.push(candidate(0, 0), false);
        serve(&mut queue, 5_000);
        queue.push(candidate(1, 0), false);
        let mut arrivals = 2;
        let mut newcomer = |queue: &mut FairShare| {
            queue.push(candidate(arrivals, arrivals), false);
            arrivals += 1;
        };
        (0..50).for_each(|_| newcomer(&mut queue));
        let turns = (0..10_000).position(|_| {
            newcomer(&mut queue);
            serve(&mut queue, 100) == 0
        });
        assert!(turns.is_some(), "its turn comes though somebody new comes before every turn");
        assert!(queue.tenants.len() <= 2 * SPARE_TENANTS, "tenants that are gone are forgotten");
    }

    #[test]
    fn output_counts_as_it_is_computed() {
        let mut queue = FairShare::default();
        for arrival in 0..6 {
            queue.push(candidate(arrival, arrival % 2), false);
        }
        assert_eq!(serve(&mut queue, 10), 0);
        assert_eq!(serve(&mut queue, 10), 1);
        queue.charge(0, 100);
        assert_eq!([serve(&mut queue, 10), serve(&mut queue, 10)], [1, 1]);
        assert_eq!(queue.len(), 2);
    }
}
