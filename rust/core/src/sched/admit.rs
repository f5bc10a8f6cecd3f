//! Letting waiting sequences run.

use super::budget::Budget;
use super::queue::Candidate;
use super::scheduler::Scheduler;
use super::step::Step;
use crate::event::CachedTokens;
use crate::kv::PrefixMatch;

/// Sequences passed over in one step because their prefix is on its way;
/// bounds the look-ups a step makes.
const MOST_DEFERRED: usize = 16;

/// How far admission has come in the step being planned.
#[derive(Clone, Copy, Debug, Default)]
pub struct Admission {
    closed: bool,
}

enum Outcome {
    Admitted,
    /// It can share soon: a sequence in this step computes blocks for the next, or
    /// some are on their way from disk.
    Deferred,
    /// No room; later ones must not overtake it.
    Full,
}

impl Scheduler {
    /// Admits waiting sequences, those only that precede `running` if it is given.
    pub(super) fn admit(
        &mut self,
        running: Option<Candidate>,
        admission: &mut Admission,
        budget: &mut Budget,
        step: &mut Step,
    ) {
        while !admission.closed && budget.tokens > 0 {
            let Some(first) = self.waiting.first() else { break };
            if running.is_some_and(|running| !self.waiting.precedes(first, running)) {
                break;
            }
            match self.try_admit(first, budget, step) {
                Outcome::Admitted => {}
                Outcome::Deferred => {
                    self.waiting.remove(first);
                    self.deferred.push(first);
                    admission.closed = self.deferred.len() >= MOST_DEFERRED;
                }
                Outcome::Full => admission.closed = true,
            }
        }
    }

    /// Deferred sequences wait again, for the next step.
    pub(super) fn undefer(&mut self) {
        self.counters.waiting_deferred = self.deferred.len();
        while let Some(candidate) = self.deferred.pop() {
            self.waiting.push(candidate, true);
        }
    }

    /// Lets the policy look into the prefix cache, if anybody can be admitted.
    pub(super) fn look_ahead(&mut self) {
        if self.free_slots.is_empty() {
            return;
        }
        let Self { waiting, sequences, kv, step, block_size, .. } = self;
        waiting.look(&mut |index| {
            let sequence = &sequences[index];
            kv.match_prefix(&sequence.lease, &sequence.tokens, *step + 1).blocks * *block_size
        });
    }

    /// What the cache has for a waiting sequence, and whether slots and blocks
    /// for all its tokens are there.
    pub(super) fn fits(&mut self, index: usize) -> (PrefixMatch, bool) {
        let sequence = &self.sequences[index];
        let found = if sequence.owes_prompt_logprobs() {
            self.kv.match_nothing()
        } else {
            self.kv.match_prefix(&sequence.lease, &sequence.tokens, self.step + 1)
        };
        let blocks = self.kv.blocks_for(sequence.tokens.len());
        let fits = !self.free_slots.is_empty() && self.kv.admits(blocks, found, self.running.len() > 0);
        (found, fits)
    }

    /// True while content that a waiting sequence can use comes from disk.
    pub(super) fn awaits_disk(&mut self, index: usize) -> bool {
        let Self { sequences, kv, now_ns, .. } = self;
        let sequence = &mut sequences[index];
        if *now_ns >= sequence.awaited_until_ns {
            sequence.awaited.clear();
        }
        sequence.awaited.retain(|hash| kv.tiers().is_some_and(|tiers| tiers.is_fetching(hash)));
        !sequence.awaited.is_empty()
    }

    fn try_admit(&mut self, first: Candidate, budget: &mut Budget, step: &mut Step) -> Outcome {
        let index = first.index;
        let heap_words = self.sequences[index].heap_words();
        if self.free_slots.is_empty() || heap_words > budget.heap {
            return Outcome::Full;
        }
        let (found, fits) = self.fits(index);
        if found.continues || self.awaits_disk(index) {
            return Outcome::Deferred;
        }
        if !fits || found.blocks + 1 > budget.deltas {
            return Outcome::Full;
        }
        let Some(slot) = self.free_slots.pop() else { return Outcome::Full };
        let sequence = &mut self.sequences[index];
        let blocks = self.kv.blocks_for(sequence.tokens.len());
        let most = sequence.max_len(self.context_len);
        self.kv.reserve(&mut sequence.lease, self.kv.blocks_for(most));
        self.kv.lease_match(&mut sequence.lease);
        let most_below = if sequence.owes_prompt_logprobs() { 0 } else { budget.deltas - found.blocks - 1 };
        let below = self.kv.find_below(&sequence.lease, &sequence.tokens, most_below);
        let start = (found.blocks + below) * self.block_size;
        let grown = self.kv.grow(&mut sequence.lease, start, blocks);
        debug_assert!(grown, "fits() counted the blocks");
        let fetched = self.kv.load(&mut sequence.lease, &sequence.tokens, below, step.number);

        self.tickets += 1;
        sequence.ticket = self.tickets;
        sequence.slot = Some(slot);
        sequence.scheduled = start;
        sequence.tokens.reserve_exact(most - sequence.tokens.len());
        let tokens = |blocks: usize| (blocks * self.block_size) as u32;
        if !sequence.started && sequence.cached.total() == 0 {
            let (device, host, disk) = (tokens(found.blocks), tokens(below - fetched), tokens(fetched));
            sequence.cached = CachedTokens { device, host, disk };
            self.counters.prompt_tokens_cached += sequence.scheduled as u64;
        }
        self.counters.prefix_query_tokens += sequence.tokens.len() as u64;
        self.counters.prefix_hit_tokens += sequence.scheduled as u64;
        self.counters.host_hit_tokens += u64::from(tokens(below));
        self.counters.disk_hit_tokens += u64::from(tokens(fetched));

        let len = sequence.tokens.len();
        let owed = len.saturating_sub(sequence.charged.max(sequence.scheduled));
        sequence.charged = sequence.charged.max(len);
        self.waiting.admit(first, owed);
        self.running.insert(first);
        budget.heap -= heap_words;
        step.begun.push(index);
        let len = self.chunk_len(index, budget);
        self.schedule(index, len, budget, step);
        Outcome::Admitted
    }
}
