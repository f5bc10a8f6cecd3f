//! What doors leave for the step loop: new requests and aborts, under limits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use octavo_core::{EngineRequest, Error, RequestId};
use parking_lot::{Condvar, Mutex};

use super::disk::Transferred;
use super::sink::Sink;
use crate::metrics::{Rejection, Siblings};

/// One engine request and where its events go.
#[derive(Debug)]
pub(super) struct Submission {
    pub request: EngineRequest,
    pub sink: Arc<Sink>,
    /// Which of the sink's choices it is.
    pub choice: u32,
    /// The choices of its prompt.
    pub siblings: Arc<Siblings>,
    /// When the door got it.
    pub arrived: Instant,
}

/// Why a door ends a request early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortCause {
    /// Its reader has gone.
    Cancelled,
    /// A stop string is in its text.
    StopString,
}

/// How long a call may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patience {
    /// From its arrival to the first step of each sequence.
    pub queue: Option<Duration>,
    /// From its arrival to its end.
    pub total: Option<Duration>,
}

/// A call that is not taken in.
#[derive(Debug)]
pub(super) struct Refused {
    pub error: Error,
    /// The limit that refused it for now.
    pub reason: Option<Rejection>,
}

impl Refused {
    fn for_now(reason: Rejection, message: String) -> Self {
        Self { error: Error::overloaded(message), reason: Some(reason) }
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self { error, reason: None }
    }
}

/// How much may be in flight at once.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimits {
    /// Most unfinished sequences.
    pub max_requests: u32,
    /// Most prompt tokens of sequences that have not sampled yet; `None` is no limit.
    pub max_prompt_tokens: Option<u64>,
}

/// What is in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// Unfinished sequences.
    pub requests: u32,
    /// Prompt tokens of those that have not sampled yet.
    pub prompt_tokens: u64,
}

#[derive(Debug, Default)]
enum Condition {
    #[default]
    Running,
    Stopped,
    Failed(Error),
}

#[derive(Debug, Default)]
struct State {
    submitted: Vec<Submission>,
    aborted: Vec<(RequestId, AbortCause)>,
    transferred: Vec<Transferred>,
    in_flight: InFlight,
    /// Prompt tokens worked off a second; 0 before it is known.
    pace: f64,
    condition: Condition,
}

/// What the loop takes out of the mailbox, kept between steps for its memory.
#[derive(Debug, Default)]
pub(super) struct Mail {
    pub submitted: Vec<Submission>,
    pub aborted: Vec<(RequestId, AbortCause)>,
    pub transferred: Vec<Transferred>,
}

/// A bounded mailbox: doors never take the core's lock.
#[derive(Debug)]
pub(super) struct Inbox {
    limits: QueueLimits,
    /// Who comes later is served later.
    in_order: bool,
    state: Mutex<State>,
    mail: Condvar,
}

impl Inbox {
    pub fn new(limits: QueueLimits, in_order: bool) -> Self {
        Self { limits, in_order, state: Mutex::default(), mail: Condvar::new() }
    }

    /// Puts all of `group` in, or none.
    pub fn submit(&self, group: Vec<Submission>, patience: Patience) -> Result<(), Refused> {
        let added = InFlight {
            requests: group.len() as u32,
            prompt_tokens: group.iter().map(|submission| submission.request.prompt.len() as u64).sum(),
        };
        let mut state = self.state.lock();
        self.admit(&state, added)?;
        self.make_it(&state, added, patience)?;
        state.in_flight.requests += added.requests;
        state.in_flight.prompt_tokens += added.prompt_tokens;
        state.submitted.extend(group);
        drop(state);
        self.mail.notify_one();
        Ok(())
    }

    /// Says early what [`Self::submit`] would: is there room for `requests` more?
    pub fn check_room(&self, requests: u32) -> Result<(), Refused> {
        self.admit(&self.state.lock(), InFlight { requests, prompt_tokens: 0 })
    }

    fn admit(&self, state: &State, added: InFlight) -> Result<(), Refused> {
        match &state.condition {
            Condition::Running => {}
            Condition::Stopped => {
                return Err(Error::overloaded("the server is shutting down; retry elsewhere").into());
            }
            Condition::Failed(error) => return Err(error.clone().into()),
        }
        let (now, most) = (state.in_flight, self.limits);
        if added.requests > most.max_requests {
            return Err(Error::invalid(
                "n",
                format!(
                    "the call asks for {} sequences, and this server takes {} at once (--max-num-queued-reqs): send \
                     fewer prompts or lower n",
                    added.requests, most.max_requests
                ),
            )
            .into());
        }
        if now.requests.saturating_add(added.requests) > most.max_requests {
            let message = format!(
                "{} sequences are in flight and this call adds {}; the limit is {} (--max-num-queued-reqs): retry \
                 later or elsewhere",
                now.requests, added.requests, most.max_requests
            );
            return Err(Refused::for_now(Rejection::Requests, message));
        }
        match most.max_prompt_tokens {
            Some(limit) if added.prompt_tokens > limit => Err(Error::invalid(
                "input_tokens",
                format!(
                    "the call has {} prompt tokens and the server queues at most {limit} (--max-num-queued-tokens); \
                     shorten it",
                    added.prompt_tokens
                ),
            )
            .into()),
            Some(limit) if now.prompt_tokens + added.prompt_tokens > limit => {
                let message = format!(
                    "{} prompt tokens wait and this call adds {}; the limit is {limit} (--max-num-queued-tokens): \
                     retry later or elsewhere",
                    now.prompt_tokens, added.prompt_tokens
                );
                Err(Refused::for_now(Rejection::Tokens, message))
            }
            _ => Ok(()),
        }
    }

    /// Refuses what cannot be in time even if prompts are worked off as fast as
    /// they were at best of late, and no output is computed beside them.
    fn make_it(&self, state: &State, added: InFlight, patience: Patience) -> Result<(), Refused> {
        if state.pace <= 0.0 {
            return Ok(());
        }
        let ahead = if self.in_order { state.in_flight.prompt_tokens } else { 0 };
        let checks = [
            ("first step", ahead, patience.queue, "queue_timeout_s"),
            ("first token", ahead + added.prompt_tokens, patience.total, "timeout_s"),
        ];
        for (what, tokens, limit, field) in checks {
            let Some(limit_s) = limit.map(|limit| limit.as_secs_f64()) else { continue };
            let estimate_s = tokens as f64 / state.pace;
            if estimate_s > limit_s {
                let message = format!(
                    "the {what} is expected in {estimate_s:.1} s ({tokens} prompt tokens are to be computed before it, \
                     {:.0} a second), but {field} is {limit_s} s: retry later or elsewhere",
                    state.pace
                );
                let retry_after_s = (estimate_s - limit_s).ceil() as u32;
                let error = Error::overloaded(message).with_retry_after(retry_after_s);
                return Err(Refused { error, reason: Some(Rejection::Deadline) });
            }
        }
        Ok(())
    }

    /// Prompt tokens are worked off at `tokens_per_s`.
    pub fn set_pace(&self, tokens_per_s: f64) {
        self.state.lock().pace = tokens_per_s;
    }

    /// Asks for the end of `requests`; unknown ones are ignored later.
    pub fn abort(&self, requests: impl IntoIterator<Item = RequestId>, cause: AbortCause) {
        self.state.lock().aborted.extend(requests.into_iter().map(|request| (request, cause)));
        self.mail.notify_one();
    }

    /// Says that a transfer of the disk tier is over.
    pub fn transferred(&self, transferred: Transferred) {
        self.state.lock().transferred.push(transferred);
        self.mail.notify_one();
    }

    /// Swaps what has come into `mail`, which must be empty. False when the engine
    /// has stopped or failed.
    pub fn take(&self, mail: &mut Mail) -> bool {
        let mut state = self.state.lock();
        std::mem::swap(&mut state.submitted, &mut mail.submitted);
        std::mem::swap(&mut state.aborted, &mut mail.aborted);
        std::mem::swap(&mut state.transferred, &mut mail.transferred);
        matches!(state.condition, Condition::Running)
    }

    /// Waits for mail, at most until `deadline`; false when none came.
    pub fn wait(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while state.submitted.is_empty()
            && state.aborted.is_empty()
            && state.transferred.is_empty()
            && matches!(state.condition, Condition::Running)
        {
            if self.mail.wait_until(&mut state, deadline).timed_out() {
                return false;
            }
        }
        true
    }

    /// Takes what has ended off the counts.
    pub fn settle(&self, ended: InFlight) {
        if ended != InFlight::default() {
            let mut state = self.state.lock();
            state.in_flight.requests -= ended.requests;
            state.in_flight.prompt_tokens -= ended.prompt_tokens;
        }
    }

    /// Refuses submissions from now on: as stopped, or with `error`. The first
    /// reason stays.
    pub fn close(&self, error: Option<Error>) {
        let mut state = self.state.lock();
        if matches!(state.condition, Condition::Running) {
            state.condition = error.map_or(Condition::Stopped, Condition::Failed);
        }
        drop(state);
        self.mail.notify_all();
    }

    pub fn in_flight(&self) -> InFlight {
        self.state.lock().in_flight
    }

    /// Why the engine has failed, if it has.
    pub fn failure(&self) -> Option<Error> {
        match &self.state.lock().condition {
            Condition::Failed(error) => Some(error.clone()),
            _ => None,
        }
    }
}

/// The deadline `timeout` from now, or a day when that overflows.
pub(super) fn deadline(timeout: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or(now + Duration::from_secs(86_400))
}
