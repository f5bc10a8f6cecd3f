//! Warnings that may repeat: at most one a minute of each kind.

use crate::Error;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_secs(60);

/// When a kind of warning was last given, and how many were not since.
#[derive(Debug, Default)]
struct Throttle {
    last: Option<Instant>,
    silent: u64,
}

impl Throttle {
    /// Whether to warn now; if so, how many times it was not done.
    fn pass(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.duration_since(last) < PAUSE) {
            self.silent += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.silent))
    }
}

/// What is said of failed jobs.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    io: Mutex<Throttle>,
    damaged: Mutex<Throttle>,
}

impl Warnings {
    /// Says what went wrong with the disk. What went wrong with the caller is the caller's to say.
    pub(crate) fn report(&self, error: &Error) {
        let (throttle, what) = match error {
            Error::Io { .. } => (&self.io, "requests go on without it"),
            Error::Damaged { .. } => (&self.damaged, "it was deleted and the block is computed again"),
            _ => return,
        };
        let pass = throttle.lock().unwrap_or_else(PoisonError::into_inner).pass(Instant::now());
        match pass {
            Some(0) => tracing::warn!("KV cache on disk: {error}; {what}"),
            Some(silent) => {
                tracing::warn!("KV cache on disk: {error}; {what} ({silent} more like it since the last)");
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_minute_passes_and_counts_the_others() {
        let start = Instant::now();
        let mut throttle = Throttle::default();
        assert_eq!(throttle.pass(start), Some(0));
        assert_eq!(throttle.pass(start + Duration::from_secs(1)), None);
        assert_eq!(throttle.pass(start + Duration::from_secs(59)), None);
        assert_eq!(throttle.pass(start + Duration::from_secs(60)), Some(2));
        assert_eq!(throttle.pass(start + Duration::from_secs(61)), None);
    }
}
