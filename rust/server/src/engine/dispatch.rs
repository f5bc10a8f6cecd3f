//! Hands the core's events to the sinks and measures them on the way.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use octavo_core::{Engine, Error, Event, EventKind, FinishReason, Plan, RequestId};

use super::inbox::{AbortCause, InFlight, Submission};
use super::sink::Sink;
use crate::metrics::{Metrics, Progress, Recorder, Tenants};

/// Open requests with their sinks. Only the loop touches it.
#[derive(Debug)]
pub(super) struct Dispatcher {
    open: HashMap<RequestId, Open>,
    recorder: Recorder,
    tenants: Option<Tenants>,
    events: Vec<Event>,
    wakers: Vec<Waker>,
    ended: InFlight,
}

#[derive(Debug)]
struct Open {
    sink: Arc<Sink>,
    choice: u32,
    progress: Progress,
}

impl Dispatcher {
    pub fn new(metrics: &Metrics) -> Self {
        Self {
            open: HashMap::new(),
            recorder: metrics.recorder(),
            tenants: metrics.tenants(),
            events: Vec::new(),
            wakers: Vec::new(),
            ended: InFlight::default(),
        }
    }

    /// Where the core puts its events; [`Self::dispatch`] empties it.
    pub fn events(&mut self) -> &mut Vec<Event> {
        &mut self.events
    }

    /// Adds a request to the engine and opens it here. One that the engine
    /// does not take ends with the engine's reason.
    pub fn add(&mut self, engine: &mut Engine, submission: Submission, now: Instant) {
        let Submission { request, sink, choice, siblings, arrived } = submission;
        let id = request.id;
        let tenant = self.tenants.as_mut().map(|tenants| tenants.get(request.tenant));
        let (prompt_tokens, max_tokens) = (request.prompt.len() as u32, request.stop.max_tokens);
        let progress = Progress::new(prompt_tokens, max_tokens, arrived, siblings, tenant);
        self.open.insert(id, Open { sink, choice, progress });
        if let Err(error) = engine.add(request) {
            self.close(id, FinishReason::Error, now, |open| open.sink.fail(error));
        }
    }

    /// Notes why a request will be aborted.
    pub fn aborting(&mut self, request: RequestId, cause: AbortCause) {
        if cause == AbortCause::StopString
            && let Some(open) = self.open.get_mut(&request)
        {
            open.progress.stopped_by_text();
        }
    }

    /// Notes a planned step.
    pub fn planned(&mut self, plan: &Plan) {
        self.recorder.step(plan.tokens);
    }

    /// Notes requests that were put back.
    pub fn preempted(&mut self, requests: &[RequestId]) {
        for request in requests {
            if let Some(open) = self.open.get_mut(request) {
                open.progress.preempted();
            }
        }
    }

    /// Hands all events out, as of `now`.
    pub fn dispatch(&mut self, now: Instant) {
        let mut events = std::mem::take(&mut self.events);
        for Event { request, kind } in events.drain(..) {
            self.hand_out(request, kind, now);
        }
        self.events = events;
        self.recorder.flush();
    }

    fn hand_out(&mut self, request: RequestId, kind: EventKind, now: Instant) {
        let Some(open) = self.open.get_mut(&request) else { return };
        let finish = match &kind {
            EventKind::Started { cached } => {
                open.progress.started(&self.recorder, *cached, now);
                None
            }
            EventKind::PromptLogprobs { .. } => None,
            EventKind::Token { finish, .. } => {
                if open.progress.token(&self.recorder, now) {
                    self.ended.prompt_tokens += u64::from(open.progress.prompt_tokens());
                }
                *finish
            }
            EventKind::Finished { reason } => Some(*reason),
        };
        match finish {
            None => self.wakers.extend(open.sink.push(open.choice, kind)),
            Some(reason) => self.close(request, reason, now, |open| open.sink.push(open.choice, kind)),
        }
    }

    /// Takes a request off the books; `tell` tells its sink.
    fn close(
        &mut self,
        id: RequestId,
        reason: FinishReason,
        now: Instant,
        tell: impl FnOnce(&Open) -> Option<Waker>,
    ) {
        let Entry::Occupied(entry) = self.open.entry(id) else { return };
        let open = entry.remove();
        self.ended.requests += 1;
        if !open.progress.has_sampled() {
            self.ended.prompt_tokens += u64::from(open.progress.prompt_tokens());
        }
        open.progress.finished(&self.recorder, reason, now);
        self.wakers.extend(tell(&open));
    }

    /// Ends every open request as aborted.
    pub fn abort_all(&mut self) {
        let reason = FinishReason::Abort;
        self.close_all(reason, |open| open.sink.push(open.choice, EventKind::Finished { reason }));
    }

    /// Ends every open request with `error`.
    pub fn fail_all(&mut self, error: &Error) {
        self.close_all(FinishReason::Error, |open| open.sink.fail(error.clone()));
    }

    fn close_all(&mut self, reason: FinishReason, tell: impl Fn(&Open) -> Option<Waker>) {
        let now = Instant::now();
        let ids: Vec<_> = self.open.keys().copied().collect();
        for id in ids {
            self.close(id, reason, now, &tell);
        }
        self.recorder.flush();
    }

    /// What ended since the last call, and whom to wake.
    pub fn take_outcome(&mut self) -> (InFlight, Vec<Waker>) {
        (std::mem::take(&mut self.ended), std::mem::take(&mut self.wakers))
    }
}
