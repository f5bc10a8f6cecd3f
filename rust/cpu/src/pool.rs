//! A few threads that share short pieces of work.
//!
//! The caller is worker 0. A call publishes a job, works on it, and returns as soon as every claimed chunk is done:
//! it never waits for a worker that has not woken up, so a core taken by another process costs its share of the
//! speed and no more. Workers spin for a moment after a job (the next operator of a step comes within microseconds)
//! and then sleep.

use std::cell::UnsafeCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a worker looks for the next job before it sleeps.
const SPIN: Duration = Duration::from_micros(60);

/// `state`: the job's number in the high half, then whether workers may still join, then how many are inside.
const OPEN: u64 = 1 << 31;
const INSIDE: u64 = OPEN - 1;

type Body<'a> = dyn Fn(usize, usize) + Sync + 'a;

#[repr(align(128))]
struct Padded<T>(T);

struct Shared {
    state: Padded<AtomicU64>,
    /// Written by the caller while the job is closed and nobody is inside; read by those inside.
    body: UnsafeCell<Option<&'static Body<'static>>>,
    /// Chunks not yet taken from each worker's share: first in the high half, end in the low half.
    shares: Vec<Padded<AtomicU64>>,
    asleep: AtomicUsize,
    waiting: AtomicBool,
    stop: AtomicBool,
    panicked: AtomicBool,
    lock: Mutex<()>,
    work: Condvar,
    done: Condvar,
}

// SAFETY: `body` is guarded by `state` as described there; everything else is atomic or locked.
unsafe impl Sync for Shared {}

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
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Callers take turns.
    turn: Mutex<()>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

fn relock(lock: &Mutex<()>) -> MutexGuard<'_, ()> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// `threads` workers in all, the caller among them; at least one. With `bind`, worker `i > 0` stays on the
    /// `i`-th core that this process may use; the caller is left where it is.
    pub fn new(threads: usize, bind: bool) -> Self {
        let threads = threads.max(1);
        let shared = Arc::new(Shared {
            state: Padded(AtomicU64::new(0)),
            body: UnsafeCell::new(None),
            shares: (0..threads).map(|_| Padded(AtomicU64::new(0))).collect(),
            asleep: AtomicUsize::new(0),
            waiting: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            lock: Mutex::new(()),
            work: Condvar::new(),
            done: Condvar::new(),
        });
        let cores = if bind { usable_cores() } else { Vec::new() };
        let workers = (1..threads)
            .map(|index| {
                let shared = Arc::clone(&shared);
                let core = (cores.len() >= threads).then(|| cores[index]);
                std::thread::Builder::new()
                    .name(format!("octavo-cpu-{index}"))
                    .spawn(move || {
                        if let Some(core) = core {
                            bind_to_core(core);
                        }
                        shared.serve(index);
                    })
                    .expect("the system starts a thread")
            })
            .collect();
        Self { shared, workers, turn: Mutex::new(()) }
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
        self.shared.publish(body, chunks, threads);
        let mine = catch_unwind(AssertUnwindSafe(|| self.shared.work_on(body, 0)));
        self.shared.close();
        let other = self.shared.panicked.swap(false, Ordering::Relaxed);
        if let Err(panic) = mine {
            resume_unwind(panic);
        }
        assert!(!other, "a worker thread panicked; its message is above");
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        {
            let _guard = relock(&self.shared.lock);
            self.shared.stop.store(true, Ordering::SeqCst);
            self.shared.work.notify_all();
        }
        for worker in self.workers.drain(..) {
            // A worker catches its panics, so there is nothing to learn from the join.
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn publish(&self, body: &Body<'_>, chunks: usize, threads: usize) {
        for (index, share) in self.shares.iter().enumerate() {
            let first = (chunks * index.min(threads) / threads) as u64;
            let end = (chunks * (index + 1).min(threads) / threads) as u64;
            share.0.store(first << 32 | end, Ordering::Relaxed);
        }
        // SAFETY: the job is closed and nobody is inside, so no one else touches `body`. Only the lifetime changes:
        // `close` returns before the borrow ends, and after it no worker uses the pointer.
        unsafe {
            let body = std::mem::transmute::<&Body<'_>, &'static Body<'static>>(body);
            *self.body.get() = Some(body);
        }
        let number = (self.state.0.load(Ordering::Relaxed) >> 32) + 1;
        self.state.0.store(number << 32 | OPEN, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) > 0 {
            let _guard = relock(&self.lock);
            self.work.notify_all();
        }
    }

    /// Lets no more workers in and waits for those inside.
    fn close(&self) {
        self.state.0.fetch_and(!OPEN, Ordering::AcqRel);
        let begin = Instant::now();
        while self.state.0.load(Ordering::Acquire) & INSIDE != 0 {
            if begin.elapsed() < SPIN {
                std::hint::spin_loop();
                continue;
            }
            let mut guard = relock(&self.lock);
            self.waiting.store(true, Ordering::SeqCst);
            while self.state.0.load(Ordering::SeqCst) & INSIDE != 0 {
                guard = self.done.wait(guard).unwrap_or_else(PoisonError::into_inner);
            }
            self.waiting.store(false, Ordering::Relaxed);
        }
    }

    /// A worker's life.
    fn serve(&self, index: usize) {
        let mut last = 0;
        while let Some(state) = self.next_job(last) {
            if self.state.0.compare_exchange(state, state + 1, Ordering::Acquire, Ordering::Relaxed).is_err()
            {
                continue;
            }
            last = state >> 32;
            // SAFETY: we are inside an open job, so `body` is set and its closure outlives our stay.
            let body = unsafe { *self.body.get() };
            if let Some(body) = body
                && catch_unwind(AssertUnwindSafe(|| self.work_on(body, index))).is_err()
            {
                self.panicked.store(true, Ordering::Relaxed);
            }
            self.state.0.fetch_sub(1, Ordering::SeqCst);
            if self.waiting.load(Ordering::SeqCst) {
                let _guard = relock(&self.lock);
                self.done.notify_all();
            }
        }
    }

    /// Waits for a job other than number `last`; `None` when the pool ends.
    fn next_job(&self, last: u64) -> Option<u64> {
        let ready = |state: u64| state & OPEN != 0 && state >> 32 != last;
        let begin = Instant::now();
        loop {
            for _ in 0..32 {
                let state = self.state.0.load(Ordering::Relaxed);
                if ready(state) {
                    return Some(state);
                }
                std::hint::spin_loop();
            }
            if begin.elapsed() > SPIN {
                break;
            }
        }
        let mut guard = relock(&self.lock);
        self.asleep.fetch_add(1, Ordering::SeqCst);
        let found = loop {
            if self.stop.load(Ordering::SeqCst) {
                break None;
            }
            let state = self.state.0.load(Ordering::SeqCst);
            if ready(state) {
                break Some(state);
            }
            guard = self.work.wait(guard).unwrap_or_else(PoisonError::into_inner);
        };
        self.asleep.fetch_sub(1, Ordering::SeqCst);
        found
    }

    fn work_on(&self, body: &Body<'_>, worker: usize) {
        while let Some(chunk) = self.take_first(worker) {
            body(chunk, worker);
        }
        for step in 1..self.shares.len() {
            let victim = (worker + step) % self.shares.len();
            while let Some(chunk) = self.take_last(victim) {
                body(chunk, worker);
            }
        }
    }

    fn take_first(&self, share: usize) -> Option<usize> {
        self.take(share, |first, end| ((first + 1) << 32 | end, first))
    }

    fn take_last(&self, share: usize) -> Option<usize> {
        self.take(share, |first, end| (first << 32 | (end - 1), end - 1))
    }

    fn take(&self, share: usize, split: impl Fn(u64, u64) -> (u64, u64)) -> Option<usize> {
        let share = &self.shares[share].0;
        let mut now = share.load(Ordering::Relaxed);
        loop {
            let (first, end) = (now >> 32, now & 0xffff_ffff);
            if first >= end {
                return None;
            }
            let (rest, chunk) = split(first, end);
            match share.compare_exchange_weak(now, rest, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(chunk as usize),
                Err(seen) => now = seen,
            }
        }
    }
}

/// The cores that this process may use, ascending.
#[cfg(target_os = "linux")]
fn usable_cores() -> Vec<usize> {
    // SAFETY: an all-zero set is a valid empty set, and the call writes within it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) != 0 {
            return Vec::new();
        }
        (0..libc::CPU_SETSIZE as usize).filter(|&core| libc::CPU_ISSET(core, &set)).collect()
    }
}

#[cfg(target_os = "linux")]
fn bind_to_core(core: usize) {
    // SAFETY: the set is valid and local. A refusal leaves the thread unbound, which costs speed only.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

#[cfg(not(target_os = "linux"))]
fn usable_cores() -> Vec<usize> {
    Vec::new()
}

#[cfg(not(target_os = "linux"))]
fn bind_to_core(_core: usize) {}

#[cfg(test)]
mod tests {
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
            let pool = Pool::new(threads, threads == 2);
            for chunks in [0, 1, 2, 3, 7, 64, 1000] {
                assert_eq!(counts(&pool, chunks), vec![1; chunks], "{threads} threads, {chunks} chunks");
            }
        }
    }

    #[test]
    fn many_short_jobs_and_sleeps_between_them() {
        let pool = Pool::new(3, false);
        for round in 0..20_000 {
            let sum = AtomicUsize::new(0);
            pool.run(4, |chunk, _| {
                sum.fetch_add(chunk + 1, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), 10);
            if round % 1000 == 0 {
                while pool.shared.asleep.load(Ordering::SeqCst) < 2 {
                    std::thread::yield_now();
                }
            }
        }
    }

    #[test]
    fn callers_from_many_threads_take_turns() {
        let pool = Pool::new(2, false);
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
        let pool = Pool::new(2, false);
        for bad in [0, 63] {
            let run = || pool.run(64, |chunk, _| assert!(chunk != bad, "bad chunk"));
            assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
            assert_eq!(counts(&pool, 64), vec![1; 64]);
        }
    }
}
