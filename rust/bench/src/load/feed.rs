//! Makes conversations and hands them over at their times.
//!
//! A thread of its own: its sleep is finer than the runtime's timer of a
//! millisecond, and making long prompts does not disturb the clock of streams.

use std::thread;
use std::time::Instant;

use tokio::sync::mpsc;

use super::workload::{Conversation, Workload};
use crate::arrivals::Arrivals;
use crate::error::{Error, Result};

/// Conversations that wait to be taken in a closed loop.
const AHEAD: usize = 64;

/// A conversation to have.
#[derive(Debug)]
pub struct Job {
    /// When it is to begin; `None` in a closed loop: as soon as it is taken.
    pub scheduled: Option<Instant>,
    /// Its requests.
    pub conversation: Conversation,
}

/// Starts the feed of conversations `first..first + count`. The first arrives
/// at once.
///
/// # Errors
/// A thread that cannot be started.
pub fn start(
    workload: &Workload,
    arrivals: &Arrivals,
    (first, count): (u64, u64),
    seed: u64,
) -> Result<mpsc::Receiver<Job>> {
    // An arrival must not wait for room: the queue holds every one of them.
    let mut times = arrivals.times(seed);
    let room = if times.is_some() { usize::try_from(count).unwrap_or(usize::MAX) } else { AHEAD };
    let (sender, receiver) = mpsc::channel(room.clamp(1, tokio::sync::Semaphore::MAX_PERMITS));
    let workload = workload.clone();
    let feed = move || {
        let mut start = None;
        for index in first..first + count {
            let conversation = workload.conversation(index);
            let scheduled = times.as_mut().and_then(Iterator::next).map(|time| {
                let at = *start.get_or_insert_with(Instant::now) + time;
                thread::sleep(at.saturating_duration_since(Instant::now()));
                at
            });
            if sender.blocking_send(Job { scheduled, conversation }).is_err() {
                return;
            }
        }
    };
    thread::Builder::new()
        .name("feed".into())
        .spawn(feed)
        .map(|_| receiver)
        .map_err(|error| Error::server(format!("the feed's thread cannot be started: {error}")))
}
