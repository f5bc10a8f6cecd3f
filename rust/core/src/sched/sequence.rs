//! A request inside the scheduler: everything needed to compute it again.

use super::queue::Candidate;
use crate::event::CachedTokens;
use crate::ids::{RequestId, Slot, Token};
use crate::kv::{BlockHash, Lease};
use crate::request::{Deadlines, Retain, SamplingParams, StopRules};

/// One sequence, waiting or running.
#[derive(Debug)]
pub struct Sequence {
    /// The request's name.
    pub id: RequestId,
    /// Prompt and output so far.
    pub tokens: Vec<Token>,
    /// Tokens of the prompt.
    pub prompt_len: usize,
    /// Itself as the policy sees it.
    pub candidate: Candidate,
    /// Leading tokens whose work is charged to its tenant.
    pub charged: usize,
    /// Tokens whose KV is computed or planned, from the start.
    pub scheduled: usize,
    /// Tokens that the device samples in steps not yet committed.
    pub unread: usize,
    /// Its KV blocks.
    pub lease: Lease,
    /// Content on its way from disk that it waits for, and until when.
    pub awaited: Vec<BlockHash>,
    pub awaited_until_ns: u64,
    /// Leading block table entries that the workers know.
    pub synced: usize,
    /// Its row on the workers while it runs.
    pub slot: Option<Slot>,
    /// Names this stay among the running; rows of an earlier stay are void.
    pub ticket: u64,
    /// The door knows that it started.
    pub started: bool,
    /// Prompt tokens that came from the cache when it first ran.
    pub cached: CachedTokens,
    /// Prompt tokens whose log-probabilities were reported, the first included.
    pub prompt_reported: usize,
    /// What of its prompt is kept, shortest first.
    pub retain: Vec<Retain>,
    /// How much of that was pinned in this stay.
    pub retained: usize,
    /// When it is given up.
    pub deadlines: Deadlines,
    /// How tokens are drawn.
    pub sampling: SamplingParams,
    /// When to stop.
    pub stop: StopRules,
}

impl Sequence {
    /// Tokens so far, those on the device included.
    pub fn len(&self) -> usize {
        self.tokens.len() + self.unread
    }

    /// Tokens to compute before the next one can be sampled.
    pub fn to_compute(&self) -> usize {
        self.len() - self.scheduled
    }

    /// The length at which it ends.
    pub fn max_len(&self, context_len: usize) -> usize {
        (self.prompt_len + self.stop.max_tokens as usize).min(context_len)
    }

    /// True while log-probabilities of prompt tokens are owed: the cache cannot
    /// give them.
    pub fn owes_prompt_logprobs(&self) -> bool {
        self.sampling.prompt_logprobs.is_some() && self.prompt_reported < self.prompt_len
    }

    /// Words of the frame's heap that its slot needs when it begins.
    pub fn heap_words(&self) -> usize {
        let history = if self.sampling.needs_history() { self.tokens.len() } else { 0 };
        history + self.suppressed() + 2 * self.sampling.logit_bias.len()
    }

    /// Ids that may not be sampled before `min_tokens`.
    fn suppressed(&self) -> usize {
        if self.stop.min_tokens == 0 {
            return 0;
        }
        self.stop.eos_token_ids.len() + self.stop.stop_token_ids.len()
    }

    /// True once it has held a slot.
    pub fn has_run(&self) -> bool {
        self.charged > 0
    }

    /// Forgets what the device holds; the tokens stay.
    pub fn rewind(&mut self) {
        self.scheduled = 0;
        self.unread = 0;
        self.synced = 0;
        self.slot = None;
        self.ticket = 0;
        self.retained = 0;
    }
}
