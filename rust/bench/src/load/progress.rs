//! A line on standard error that says how far a run is, if a person is watching.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How far a run is.
#[derive(Debug)]
pub struct Progress {
    total: u64,
    next: Option<Instant>,
}

impl Progress {
    /// Of `total` steps. Shows nothing unless standard error is a terminal.
    pub fn new(total: u64) -> Self {
        Self { total, next: std::io::stderr().is_terminal().then(Instant::now) }
    }

    /// Says that `done` are done, at most five times a second.
    pub fn show(&mut self, done: u64, failed: u64) {
        let Some(next) = &mut self.next else { return };
        let now = Instant::now();
        if now >= *next {
            *next = now + Duration::from_millis(200);
            let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
            eprint!("\r{done}/{}{failed}\x1b[K", self.total);
            let _ = std::io::stderr().flush();
        }
    }

    /// Takes the line away.
    pub fn clear(&self) {
        if self.next.is_some() {
            eprint!("\r\x1b[K");
        }
    }
}
