//! How workers learn of a job, share it and leave it. Lock-free while they are awake.
//!
//! `pool/model.rs` checks the orders below with loom. Two pairs of variables matter: a worker counts itself into
//! `asleep` and then reads `state`, while the caller writes `state` and then reads `asleep`; a worker leaves `state`
//! and then reads `waiting`, while the caller sets `waiting` and then reads `state`. In each pair both sides touch
//! one variable by a read-modify-write, so one of them comes after the other and sees what it wrote before.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::sync::{
    AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, PoisonError, UnsafeCell,
    spin_loop,
};

/// How long a worker looks for the next job before it sleeps.
const SPIN: Duration = if cfg!(loom) { Duration::ZERO } else { Duration::from_micros(60) };
/// Looks between two at the clock.
const LOOKS: usize = if cfg!(loom) { 1 } else { 32 };

/// `state`: the job's number in the high half, then whether workers may still join, then how many are inside.
const OPEN: u64 = 1 << 31;
const INSIDE: u64 = OPEN - 1;

/// What is done with a chunk, by which worker.
pub type Body<'a> = dyn Fn(usize, usize) + Sync + 'a;

#[repr(align(128))]
struct Padded<T>(T);

/// Workers and the job that they share.
pub struct Team {
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
    #[cfg(all(loom, test))]
    pub fault: super::model::Fault,
}

// SAFETY: `body` is guarded by `state` as described there; everything else is atomic or locked.
unsafe impl Sync for Team {}

/// Locks; a panic of who had the lock before does not matter.
pub fn relock(lock: &Mutex<()>) -> MutexGuard<'_, ()> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Team {
    /// A team without a job, of `threads` workers.
    pub fn new(threads: usize) -> Self {
        Self {
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
            #[cfg(all(loom, test))]
            fault: super::model::Fault::None,
        }
    }

    /// Ends the lives of all workers.
    pub fn stop(&self) {
        let _guard = relock(&self.lock);
        self.stop.store(true, Ordering::Release);
        self.work.notify_all();
    }

    /// Whether a worker panicked since the last call.
    pub fn take_panicked(&self) -> bool {
        self.panicked.swap(false, Ordering::Relaxed)
    }

    /// Workers that sleep.
    #[cfg(all(test, not(loom)))]
    pub fn asleep(&self) -> usize {
        self.asleep.load(Ordering::Relaxed)
    }

    /// Gives `threads` of the workers a job of so many chunks. [`Self::close`] must be called before `body` ends.
    pub fn publish(&self, body: &Body<'_>, chunks: usize, threads: usize) {
        for (index, share) in self.shares.iter().enumerate() {
            let first = (chunks * index.min(threads) / threads) as u64;
            let end = (chunks * (index + 1).min(threads) / threads) as u64;
            share.0.store(first << 32 | end, Ordering::Relaxed);
        }
        // SAFETY: the job is closed and nobody is inside, so no one else touches `body`. Only the lifetime changes:
        // `close` returns before the borrow ends, and after it no worker uses the pointer.
        unsafe {
            let body = std::mem::transmute::<&Body<'_>, &'static Body<'static>>(body);
            self.body.with_mut(|place| *place = Some(body));
        }
        let number = (self.state.0.load(Ordering::Relaxed) >> 32) + 1;
        self.state.0.store(number << 32 | OPEN, Ordering::Release);
        if self.sleepers() > 0 {
            let _guard = relock(&self.lock);
            self.work.notify_all();
        }
    }

    /// Workers that sleep, or will once they have seen the job.
    fn sleepers(&self) -> usize {
        self.asleep.fetch_add(0, Ordering::AcqRel)
    }

    /// Leaves a job: what was done in it is there for the caller.
    fn leave(&self) {
        #[cfg(all(loom, test))]
        if self.fault == super::model::Fault::LeaveRelaxed {
            self.state.0.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        self.state.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// True once all workers have left, and what they did is there.
    fn is_left(&self) -> bool {
        #[cfg(all(loom, test))]
        if self.fault == super::model::Fault::CloseRelaxed {
            return self.state.0.load(Ordering::Relaxed) & INSIDE == 0;
        }
        self.state.0.load(Ordering::Acquire) & INSIDE == 0
    }

    /// Lets no more workers in and waits for those inside.
    pub fn close(&self) {
        self.state.0.fetch_and(!OPEN, Ordering::Relaxed);
        let begin = Instant::now();
        while !self.is_left() {
            if begin.elapsed() < SPIN {
                spin_loop();
                continue;
            }
            let mut guard = relock(&self.lock);
            self.waiting.store(true, Ordering::Release);
            while self.state.0.fetch_or(0, Ordering::AcqRel) & INSIDE != 0 {
                guard = self.done.wait(guard).unwrap_or_else(PoisonError::into_inner);
            }
            self.waiting.store(false, Ordering::Relaxed);
        }
    }

    /// A worker's life.
    pub fn serve(&self, index: usize) {
        let mut last = 0;
        while let Some(state) = self.next_job(last) {
            if self.state.0.compare_exchange(state, state + 1, Ordering::Acquire, Ordering::Relaxed).is_err()
            {
                continue;
            }
            last = state >> 32;
            // SAFETY: we are inside an open job, so `body` is set and its closure outlives our stay.
            let body = self.body.with(|place| unsafe { *place });
            if let Some(body) = body
                && catch_unwind(AssertUnwindSafe(|| self.work_on(body, index))).is_err()
            {
                self.panicked.store(true, Ordering::Relaxed);
            }
            self.leave();
            if self.waiting.load(Ordering::Acquire) {
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
            for _ in 0..LOOKS {
                let state = self.state.0.load(Ordering::Relaxed);
                if ready(state) {
                    return Some(state);
                }
                spin_loop();
            }
            if begin.elapsed() > SPIN {
                break;
            }
        }
        let mut guard = relock(&self.lock);
        self.asleep.fetch_add(1, Ordering::AcqRel);
        let found = loop {
            if self.stop.load(Ordering::Acquire) {
                break None;
            }
            let state = self.state.0.load(Ordering::Acquire);
            if ready(state) {
                break Some(state);
            }
            guard = self.work.wait(guard).unwrap_or_else(PoisonError::into_inner);
        };
        self.asleep.fetch_sub(1, Ordering::AcqRel);
        found
    }

    /// Takes chunks, its own first, until there are none.
    pub fn work_on(&self, body: &Body<'_>, worker: usize) {
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
