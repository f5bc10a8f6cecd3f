//! How fast prompts are worked off, to say at the door whether a request can
//! make its deadline.

use std::time::{Duration, Instant};

/// Shortest time that is measured.
const WINDOW: Duration = Duration::from_millis(250);
/// What a better window's rate is still worth at the end of the next one.
const KEEP: f64 = 0.98;

/// The best rate of late. Time in which no prompt waits says nothing of what the
/// engine can do and is not measured, so that what is made of the rate is never
/// longer than it will take.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Begin of the window, and the prompt tokens done by then.
    window: Option<(Instant, u64)>,
    best: f64,
}

impl Pace {
    /// Notes that `done` prompt tokens are done at `now`, and whether more wait.
    /// The rate in tokens a second where it is new.
    pub fn note(&mut self, now: Instant, done: u64, more_wait: bool) -> Option<f64> {
        if !more_wait {
            self.window = None;
            return None;
        }
        let (begin, before) = *self.window.get_or_insert((now, done));
        let elapsed = now - begin;
        if elapsed < WINDOW {
            return None;
        }
        self.window = Some((now, done));
        self.best = (self.best * KEEP).max((done - before) as f64 / elapsed.as_secs_f64());
        Some(self.best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_alone_is_measured_and_the_best_of_it_kept() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut pace = Pace::default();
        assert_eq!(pace.note(at(0), 0, true), None);
        assert_eq!(pace.note(at(100), 100, false), None, "nothing waits");
        assert_eq!(pace.note(at(10_000), 100, true), None);
        assert_eq!(pace.note(at(10_100), 600, true), None, "too short");
        assert_eq!(pace.note(at(10_500), 1_100, true), Some(2000.0));
        assert_eq!(pace.note(at(11_000), 1_200, true), Some(1960.0));
    }
}
