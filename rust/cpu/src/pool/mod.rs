//! A few threads that share short pieces of work.
//!
//! The caller is worker 0. A call publishes a job, works on it, and returns as soon as every claimed chunk is done:
//! it never waits for a worker that has not woken up, so a core taken by another process costs its share of the
//! speed and no more. Workers spin for a moment after a job (the next operator of a step comes within microseconds)
//! and then sleep.

mod affinity;
#[cfg(all(loom, test))]
mod model;
mod team;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use self::team::{Body, Team, relock};
use crate::sync::{Arc, JoinHandle, Mutex, spawn};

/// Lets the chunks of a job share raw pointers. Whoever makes one sees to it that chunks write disjoint places and
/// read only what no other chunk writes.
pub(crate) struct AssumeSync<T>(pub T);

// SAFETY: see above.
unsafe impl<T> Sync for AssumeSync<T> {}

impl<T: Copy> AssumeSync<T> {
    /// What is shared. A method, so that closures capture the whole and not the pointer inside.
    #[inline(always)]
    pub fn get(&self) -> T {
        self.0
    }
}

/// A fixed set of worker threads.
pub struct Pool {
    team: Arc<Team>,
    workers: Vec<JoinHandle<()>>,
    /// Callers take turns.
    turn: Mutex<()>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

impl Pool {
    /// `threads` workers in all, the caller among them; at least one.
    pub fn new(threads: usize) -> Self {
        Self::of(Team::new(threads.max(1)), threads.max(1))
    }

    fn of(team: Team, threads: usize) -> Self {
        let team = Arc::new(team);
        let workers = (1..threads)
            .map(|index| {
                let team = Arc::clone(&team);
                spawn(format!("octavo-cpu-{index}"), move || team.serve(index))
            })
            .collect();
        Self { team, workers, turn: Mutex::new(()) }
    }

    /// Keeps each worker on the core of its number in `cores`. The first of them is for the caller, who is left
    /// where it is.
    ///
    /// # Errors
    /// Names the core that the system refuses.
    pub fn bind(&self, cores: &[usize]) -> Result<(), String> {
        for (worker, &core) in self.workers.iter().zip(cores.iter().skip(1)) {
            affinity::keep_to_core(worker, core)
                .map_err(|error| format!("a thread cannot be kept on core {core}: {error}"))?;
        }
        Ok(())
    }

    /// Workers, the caller among them.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `body(chunk, worker)` once for each chunk below `chunks` and returns when all are done. Each worker
    /// begins with an equal, contiguous share in ascending order and then takes chunks from the end of others'
    /// shares. Must not be called from inside a body.
    ///
    /// # Panics
    /// When a body panics, after the others have finished.
    pub fn run(&self, chunks: usize, body: impl Fn(usize, usize) + Sync) {
        let threads = self.threads().min(chunks);
        if threads <= 1 {
            for chunk in 0..chunks {
                body(chunk, 0);
            }
            return;
        }
        let _turn = relock(&self.turn);
        let body: &Body<'_> = &body;
        self.team.publish(body, chunks, threads);
        let mine = catch_unwind(AssertUnwindSafe(|| self.team.work_on(body, 0)));
        self.team.close();
        let other = self.team.take_panicked();
        if let Err(panic) = mine {
            resume_unwind(panic);
        }
        assert!(!other, "a worker thread panicked; its message is above");
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.team.stop();
        for worker in self.workers.drain(..) {
            // A worker catches its panics, so there is nothing to learn from the join.
            let _ = worker.join();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn counts(pool: &Pool, chunks: usize) -> Vec<usize> {
        let seen: Vec<_> = (0..chunks).map(|_| AtomicUsize::new(0)).collect();
        pool.run(chunks, |chunk, worker| {
            assert!(worker < pool.threads());
            seen[chunk].fetch_add(1, Ordering::Relaxed);
        });
        seen.into_iter().map(AtomicUsize::into_inner).collect()
    }

    #[test]
    fn every_chunk_runs_exactly_once() {
        for threads in [1, 2, 3, 5] {
            let pool = Pool::new(threads);
            for chunks in [0, 1, 2, 3, 7, 64, 1000] {
                assert_eq!(counts(&pool, chunks), vec![1; chunks], "{threads} threads, {chunks} chunks");
            }
        }
    }

    #[test]
    fn many_short_jobs_and_sleeps_between_them() {
        let pool = Pool::new(3);
        for round in 0..20_000 {
            let sum = AtomicUsize::new(0);
            pool.run(4, |chunk, _| {
                sum.fetch_add(chunk + 1, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), 10);
            if round % 1000 == 0 {
                while pool.team.asleep() < 2 {
                    std::thread::yield_now();
                }
            }
        }
    }

    #[test]
    fn callers_from_many_threads_take_turns() {
        let pool = Pool::new(2);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        assert_eq!(counts(&pool, 9), vec![1; 9]);
                    }
                });
            }
        });
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(2);
        for bad in [0, 63] {
            let run = || pool.run(64, |chunk, _| assert!(chunk != bad, "bad chunk"));
            assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
            assert_eq!(counts(&pool, 64), vec![1; 64]);
        }
    }
}
