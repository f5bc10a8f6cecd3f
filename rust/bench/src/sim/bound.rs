//! How long a request may take under each policy, in steps.
//!
//! In every step the front of the running order gets its next token or its next
//! chunk: nobody displaces it for memory. So a request ends within the steps that
//! it itself and all whom its policy lets go before it would take one after
//! another. Who those are:
//!
//! * first come: all who came before it;
//! * priority: all of its class or a better one who came before it, and all of
//!   a better one who come later;
//! * longest prefix: all who came before it, and so many later ones as it may be
//!   passed over for;
//! * fair share: those of its own tenant who came before it, and of each other
//!   tenant as many tokens as it and they are given, for the tenant with the
//!   smallest counter is next.
//!
//! One after another is what the worst trace would do; a real one shares its
//! steps, so requests use a small part of their bounds.

use std::collections::BTreeMap;
use std::ops::{AddAssign, SubAssign};

use octavo_core::{EngineLimits, EngineRequest, LPM_PATIENCE, Policy};

/// What requests take one after another.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    requests: u64,
    /// Without what is computed again because another went before.
    steps: u64,
    /// Tokens, prompts included.
    tokens: u64,
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.steps += other.steps;
        self.tokens += other.tokens;
    }
}

impl SubAssign for Work {
    fn sub_assign(&mut self, other: Self) {
        self.requests -= other.requests;
        self.steps -= other.steps;
        self.tokens -= other.tokens;
    }
}

/// Requests that the policy treats alike.
#[derive(Clone, Copy, Debug, Default)]
struct Class {
    unfinished: Work,
    /// Of all that ever came.
    arrived: Work,
}

/// What is known of a request since it came.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// The last step before it.
    pub since: u64,
    class: i64,
    /// Who goes before it, and it.
    ahead: Work,
    /// Of better classes, what came before it.
    better: Work,
    deaths: u64,
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Bound {
    policy: Policy,
    chunk: u64,
    depth: u64,
    slots: u64,
    context_len: u64,
    classes: BTreeMap<i64, Class>,
    /// Of one request so far.
    most: Work,
    fewest_tokens: u64,
    deaths: u64,
}

impl Bound {
    /// For an idle engine, with all tenants of one weight.
    pub fn new(limits: &EngineLimits) -> Self {
        // Single tokens of other sequences go first; the rest of the budget is cut to whole blocks.
        let spare = limits.max_num_batched_tokens.saturating_sub(limits.max_num_seqs + limits.block_size);
        let threshold = match limits.long_prefill_token_threshold {
            0 => u32::MAX,
            most => most.saturating_sub(limits.block_size),
        };
        Self {
            policy: limits.policy,
            chunk: u64::from(spare.min(threshold).max(1)),
            depth: u64::from(limits.pipeline_depth),
            slots: u64::from(limits.max_num_seqs),
            context_len: u64::from(limits.context_len()),
            classes: BTreeMap::new(),
            most: Work::default(),
            fewest_tokens: u64::MAX,
            deaths: 0,
        }
    }

    /// Counts a request in, before `step` is planned.
    pub fn arrive(&mut self, request: &EngineRequest, step: u64) -> Wait {
        let (class, work) = (self.class(request), self.work(request));
        let entry = self.classes.entry(class).or_default();
        entry.arrived += work;
        entry.unfinished += work;
        self.most.steps = self.most.steps.max(work.steps);
        self.most.tokens = self.most.tokens.max(work.tokens);
        // Its prompt may cost nothing: the cache may have it.
        let may_stop = !request.stop.stop_token_ids.is_empty();
        let output = if may_stop { 1 } else { self.output(request) };
        self.fewest_tokens = self.fewest_tokens.min(output + 1);
        let mut ahead = Work::default();
        let before = match self.policy {
            Policy::FairShare => self.classes.range(class..=class),
            _ => self.classes.range(..=class),
        };
        before.for_each(|(_, class)| ahead += class.unfinished);
        Wait { since: step, class, ahead, better: self.better(class), deaths: self.deaths }
    }

    /// Counts a request out.
    pub fn end(&mut self, request: &EngineRequest) {
        let work = self.work(request);
        if let Some(class) = self.classes.get_mut(&self.class(request)) {
            class.unfinished -= work;
        }
    }

    /// The device died: what runs is computed again.
    pub fn died(&mut self) {
        self.deaths += 1;
    }

    /// The step by which a request must have ended, as far as is known now.
    pub fn due(&self, wait: &Wait) -> u64 {
        let again = self.chunks(self.most.tokens) + 4 * self.depth;
        let work = wait.ahead;
        let steps = match self.policy {
            Policy::Fcfs => work.steps,
            Policy::Priority => {
                let mut work = work;
                work += self.better(wait.class);
                work -= wait.better;
                work.steps + work.requests * again
            }
            Policy::LongestPrefix => {
                work.steps + LPM_PATIENCE * self.most.steps + (work.requests + LPM_PATIENCE) * again
            }
            Policy::FairShare => {
                // What runs when it comes, and what its tenant's counter may be ahead by.
                let lead = self.slots * self.most.tokens;
                let others = self.classes.len() as u64 - 1;
                let tokens = work.tokens + lead + others * (work.tokens + lead + self.most.tokens);
                tokens + (tokens / self.fewest_tokens + 1) * (2 * again)
            }
        };
        wait.since + steps + (self.deaths - wait.deaths) * again
    }

    fn class(&self, request: &EngineRequest) -> i64 {
        match self.policy {
            Policy::Fcfs | Policy::LongestPrefix => 0,
            Policy::Priority => i64::from(request.priority),
            Policy::FairShare => request.tenant.cast_signed(),
        }
    }

    /// What came so far of classes that go before this one, under the priority policy.
    fn better(&self, class: i64) -> Work {
        let mut work = Work::default();
        if self.policy == Policy::Priority {
            self.classes.range(..class).for_each(|(_, class)| work += class.arrived);
        }
        work
    }

    fn work(&self, request: &EngineRequest) -> Work {
        let (prompt, output) = (request.prompt.len() as u64, self.output(request));
        // Its chunks, its tokens, its chunks anew (it may have been preempted before it was the front), and the
        // steps in flight around each change.
        let steps = 2 * self.chunks(prompt + output) + output + 4 * self.depth;
        Work { requests: 1, steps, tokens: prompt + output }
    }

    fn output(&self, request: &EngineRequest) -> u64 {
        let prompt = request.prompt.len() as u64;
        u64::from(request.stop.max_tokens).min(self.context_len.saturating_sub(prompt))
    }

    fn chunks(&self, tokens: u64) -> u64 {
        tokens.div_ceil(self.chunk)
    }
}
