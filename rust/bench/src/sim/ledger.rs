//! Follows every request from its arrival to its end and says when a promise is broken.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use octavo_core::fake::FakeWorker;
use octavo_core::{EngineRequest, Event, EventKind, FinishReason, Token};

use super::bound::{Bound, Wait};
use crate::distribution::Distribution;
use crate::error::{Error, Result};

/// A request that has not ended.
#[derive(Debug)]
struct Live {
    request: EngineRequest,
    arrived: Duration,
    wait: Wait,
    started: bool,
    tokens: Vec<Token>,
    last: Duration,
}

/// What requests add up to. Times are virtual.
#[derive(Debug, Default)]
pub struct Totals {
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
    /// The largest share of its bound that a request took.
    pub bound_used: f64,
    /// Of each request that was not aborted: why it ended, and a hash of its id and tokens.
    pub outputs: BTreeMap<u64, (FinishReason, u64)>,
}

impl Totals {
    /// Requests that got all their tokens.
    pub fn completed(&self) -> u64 {
        self.outputs.len() as u64
    }

    /// All outputs as one number.
    pub fn digest(&self) -> u64 {
        self.outputs.values().fold(0, |sum, (_, hash)| sum.wrapping_add(*hash))
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Ledger {
    live: HashMap<u64, Live>,
    bound: Bound,
    /// Computes what a request gets when it is alone.
    oracle: FakeWorker,
    context_len: usize,
    /// Sums so far.
    pub totals: Totals,
}

impl Ledger {
    /// An empty ledger; requests must end within `bound`.
    pub fn new(oracle: FakeWorker, context_len: usize, bound: Bound) -> Self {
        Self { live: HashMap::new(), bound, oracle, context_len, totals: Totals::default() }
    }

    /// A request was taken in at a time, before `step` is planned.
    pub fn arrive(&mut self, request: EngineRequest, now: Duration, step: u64) {
        let wait = self.bound.arrive(&request, step);
        let live = Live { arrived: now, wait, started: false, tokens: Vec::new(), last: now, request };
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
        let due = self.bound.due(&live.wait);
        if step > due {
            return Err(starves(id));
        }
        let used = (step - live.wait.since) as f64 / (due - live.wait.since) as f64;
        self.totals.bound_used = self.totals.bound_used.max(used);
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
        match self.live.iter().find(|(_, live)| step > self.bound.due(&live.wait)) {
            Some((&id, _)) => Err(starves(id)),
            None => Ok(()),
        }
    }

    /// The device died and lost its memory.
    pub fn died(&mut self) {
        self.bound.died();
    }

    fn end(&mut self, id: u64, reason: FinishReason) -> Result<()> {
        let Some(live) = self.live.remove(&id) else { return Ok(()) };
        self.bound.end(&live.request);
        let broken = |what: String| Err(Error::violation(format!("request {id} {what}")));
        let expected = self.oracle.expected(&live.request, self.context_len);
        let stop = live.tokens.last().filter(|last| live.request.stop.stop_token_ids.contains(last));
        let natural = stop.map_or(FinishReason::Length, |&last| FinishReason::StopToken(last));
        match reason {
            FinishReason::Abort if expected.starts_with(&live.tokens) => self.totals.aborted += 1,
            _ if reason == natural && expected == live.tokens => {
                self.totals.input_tokens += live.request.prompt.len() as u64;
                self.totals.e2el.record(live.last.saturating_sub(live.arrived));
                self.totals.outputs.insert(id, (reason, hash(id, &live.tokens)));
            }
            FinishReason::Abort | FinishReason::Length | FinishReason::StopToken(_) => {
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

fn starves(id: u64) -> Error {
    Error::violation(format!(
        "request {id} took more steps than all the work that may go before it: it starves"
    ))
}

/// FNV-1a over the id and the tokens.
fn hash(id: u64, tokens: &[Token]) -> u64 {
    let words = std::iter::once(id).chain(tokens.iter().map(|&token| u64::from(token)));
    words
        .flat_map(u64::to_le_bytes)
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use octavo_core::{CachedTokens, RequestId};

    use super::super::steady;
    use super::*;

    /// A ledger with one request of two tokens, and what it gets.
    fn one() -> (Ledger, Vec<Token>) {
        let limits = steady::limits(2, 64);
        let oracle = FakeWorker::new(&limits);
        let request = steady::prompted(0, 8, 2);
        let output = oracle.expected(&request, 64);
        let mut ledger = Ledger::new(oracle, 64, Bound::new(&limits));
        ledger.arrive(request, Duration::ZERO, 0);
        (ledger, output)
    }

    fn event(kind: EventKind) -> Event {
        Event { request: RequestId(0), kind }
    }

    fn token(token: Token, finish: Option<FinishReason>) -> Event {
        event(EventKind::Token { token, logprobs: None, finish })
    }

    fn started() -> Event {
        event(EventKind::Started { cached: CachedTokens::default() })
    }

    /// Why the last of the events, at these steps, is refused.
    fn refused(events: &[(Event, u64)]) -> String {
        let (mut ledger, _) = one();
        let Some(((last, last_step), before)) = events.split_last() else { return String::new() };
        for (event, step) in before {
            ledger.take(event, Duration::ZERO, *step).unwrap();
        }
        ledger.take(last, Duration::ZERO, *last_step).unwrap_err().to_string()
    }

    #[test]
    fn a_request_runs_from_its_start_to_one_end() {
        let (mut ledger, output) = one();
        let end = Some(FinishReason::Length);
        for event in [started(), token(output[0], None), token(output[1], end)] {
            ledger.take(&event, Duration::from_millis(5), 3).unwrap();
        }
        assert_eq!((ledger.live(), ledger.totals.completed(), ledger.totals.output_tokens), (0, 1, 2));
        let again = event(EventKind::Finished { reason: FinishReason::Abort });
        assert!(ledger.take(&again, Duration::ZERO, 4).unwrap_err().to_string().contains("after its end"));
    }

    #[test]
    fn every_broken_promise_is_named() {
        let (_, output) = one();
        let end = Some(FinishReason::Length);
        assert!(refused(&[(token(output[0], None), 1)]).contains("before its start"));
        assert!(refused(&[(started(), 1), (started(), 2)]).contains("started twice"));
        assert!(refused(&[(started(), 1), (token(output[0], end), 2)]).contains("1 tokens of 2"));
        let wrong = token(output[0] ^ 1, end);
        assert!(refused(&[(started(), 1), (wrong, 2)]).contains("token 0 is not what it gets alone"));
        assert!(refused(&[(started(), 1_000)]).contains("it starves"));
        let (ledger, _) = one();
        assert!(ledger.check_ages(1_000).unwrap_err().to_string().contains("request 0"));
    }
}
