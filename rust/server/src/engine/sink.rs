//! Where the events of one door's call go.

use std::task::{Context, Poll, Waker};

use octavo_core::{Error, EventKind, Result};
use parking_lot::Mutex;

/// Collects the events of all choices of one call until the door reads them.
///
/// Writing never waits: a slow reader finds more events at once. What piles up
/// is bounded by the output tokens that its requests may produce.
#[derive(Debug, Default)]
pub struct Sink {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    events: Vec<(u32, EventKind)>,
    failure: Option<Error>,
    reader: Option<Waker>,
    /// The reader wants to know only when a choice has ended.
    ends_only: bool,
    /// One of `events` ends a choice.
    has_end: bool,
}

impl Sink {
    /// Adds an event of choice `choice`; returns the reader to wake, if it waits
    /// for such an event.
    pub(super) fn push(&self, choice: u32, kind: EventKind) -> Option<Waker> {
        let is_end = matches!(kind, EventKind::Finished { .. } | EventKind::Token { finish: Some(_), .. });
        let mut state = self.state.lock();
        state.events.push((choice, kind));
        state.has_end |= is_end;
        if is_end || !state.ends_only { state.reader.take() } else { None }
    }

    /// From now on events wait until a choice has ended.
    pub fn wait_for_ends(&self) {
        self.state.lock().ends_only = true;
    }

    /// Ends all choices with `error`, after the events that are already there.
    pub(super) fn fail(&self, error: Error) -> Option<Waker> {
        let mut state = self.state.lock();
        state.failure = Some(error);
        state.reader.take()
    }

    /// Swaps the events that have come into `events`, which must be empty, so
    /// that its memory is used again.
    ///
    /// # Errors
    /// The engine's failure, once all events before it have been read.
    pub fn poll_events(&self, cx: &mut Context<'_>, events: &mut Vec<(u32, EventKind)>) -> Poll<Result<()>> {
        debug_assert!(events.is_empty());
        let mut state = self.state.lock();
        let due = state.has_end || (!state.ends_only && !state.events.is_empty());
        if due || (state.failure.is_some() && !state.events.is_empty()) {
            state.has_end = false;
            std::mem::swap(&mut state.events, events);
            return Poll::Ready(Ok(()));
        }
        if let Some(error) = &state.failure {
            return Poll::Ready(Err(error.clone()));
        }
        match &mut state.reader {
            Some(reader) => reader.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}
