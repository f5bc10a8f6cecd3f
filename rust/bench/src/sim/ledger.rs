//! Follows every request from its arrival to its end and says when a promise is broken.

use std::collections::HashMap;
use std::time::Duration;

use octavo_core::fake::FakeWorker;
use octavo_core::{EngineRequest, Event, EventKind, FinishReason, Token};

use super::bound::Bound;
use crate::distribution::Distribution;
use crate::error::{Error, Result};

/// A request that has not ended.
#[derive(Debug)]
struct Live {
    request: EngineRequest,
    arrived: Duration,
    /// The step by which it must have ended.
    due_step: Option<u64>,
    started: bool,
    tokens: Vec<Token>,
    last: Duration,
}

/// What requests add up to. Times are virtual.
#[derive(Debug, Default)]
pub struct Totals {
    /// Requests that got all their tokens.
    pub completed: u64,
    /// Requests that were aborted before.
    pub aborted: u64,
    /// Requests refused because the queue was full.
    pub refused: u64,
    /// Tokens given out.
    pub output_tokens: u64,
    /// Prompt tokens of requests that completed.
    pub input_tokens: u64,
    /// From arrival to first token.
    pub ttft: Distribution,
    /// Between tokens.
    pub itl: Distribution,
    /// From arrival to the last token.
    pub e2el: Distribution,
    /// Sum over completed requests of a hash of (id, tokens): the same whatever the order.
    pub digest: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Ledger {
    live: HashMap<u64, Live>,
    bound: Option<Bound>,
    /// Computes what a request gets when it is alone.
    oracle: FakeWorker,
    context_len: usize,
    /// Sums so far.
    pub totals: Totals,
}

impl Ledger {
    /// An empty ledger. With a `bound`, requests must end in time.
    pub fn new(oracle: FakeWorker, context_len: usize, bound: Option<Bound>) -> Self {
        Self { live: HashMap::new(), bound, oracle, context_len, totals: Totals::default() }
    }

    /// A request was taken in at a time, before `step` is planned.
    pub fn arrive(&mut self, request: EngineRequest, now: Duration, step: u64) {
        let due_step = self.bound.as_mut().map(|bound| bound.arrive(&request, step));
        let live = Live { arrived: now, due_step, started: false, tokens: Vec::new(), last: now, request };
        self.live.insert(live.request.id.0, live);
    }

    /// Requests that have not ended.
    pub fn live(&self) -> usize {
        self.live.len()
    }

    /// Takes in what the engine said at a time, after `step` was committed.
    ///
    /// # Errors
    /// A violation, with the request's number.
    pub fn take(&mut self, event: &Event, now: Duration, step: u64) -> Result<()> {
        let id = event.request.0;
        let broken = |what: &str| Error::violation(format!("request {id} {what}"));
        let live = self.live.get_mut(&id).ok_or_else(|| broken("has an event after its end"))?;
        if live.due_step.is_some_and(|due| step > due) {
            return Err(broken("took more steps than all the work before it: it starves"));
        }
        match &event.kind {
            EventKind::Started { .. } if live.started => return Err(broken("started twice")),
            EventKind::Started { .. } => live.started = true,
            EventKind::PromptLogprobs { .. } => {
                return Err(broken("has log-probabilities that were not asked for"));
            }
            EventKind::Token { .. } if !live.started => return Err(broken("has a token before its start")),
            EventKind::Token { token, finish, .. } => {
                let since = if live.tokens.is_empty() { &mut self.totals.ttft } else { &mut self.totals.itl };
                since.record(now.saturating_sub(live.last));
                live.last = now;
                live.tokens.push(*token);
                self.totals.output_tokens += 1;
                if let Some(reason) = finish {
                    return self.end(id, *reason);
                }
            }
            EventKind::Finished { reason } => return self.end(id, *reason),
        }
        Ok(())
    }

    /// Checks what is still here for its age.
    ///
    /// # Errors
    /// A violation, with the request's number.
    pub fn check_ages(&self, step: u64) -> Result<()> {
        match self.live.iter().find(|(_, live)| live.due_step.is_some_and(|due| step > due)) {
            Some((id, _)) => Err(Error::violation(format!(
                "request {id} took more steps than all the work before it: it starves"
            ))),
            None => Ok(()),
        }
    }

    fn end(&mut self, id: u64, reason: FinishReason) -> Result<()> {
        let Some(live) = self.live.remove(&id) else { return Ok(()) };
        if let Some(bound) = &mut self.bound {
            bound.end(&live.request);
        }
        let broken = |what: String| Err(Error::violation(format!("request {id} {what}")));
        let expected = self.oracle.expected(&live.request, self.context_len);
        match reason {
            FinishReason::Abort if expected.starts_with(&live.tokens) => self.totals.aborted += 1,
            FinishReason::Length if expected == live.tokens => {
                self.totals.completed += 1;
                self.totals.input_tokens += live.request.prompt.len() as u64;
                self.totals.e2el.record(live.last.saturating_sub(live.arrived));
                self.totals.digest = self.totals.digest.wrapping_add(digest(id, &live.tokens));
            }
            FinishReason::Abort | FinishReason::Length => {
                let at =
                    live.tokens.iter().zip(&expected).take_while(|(found, alone)| found == alone).count();
                return broken(format!(
                    "ended with {} tokens of {}; token {at} is not what it gets alone",
                    live.tokens.len(),
                    expected.len()
                ));
            }
            other => return broken(format!("ended as {other:?}")),
        }
        Ok(())
    }
}

/// FNV-1a over the id and the tokens.
fn digest(id: u64, tokens: &[Token]) -> u64 {
    let words = std::iter::once(id).chain(tokens.iter().map(|&token| u64::from(token)));
    words
        .flat_map(u64::to_le_bytes)
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
