//! Every order of events of a small pool, by loom: `make test-loom`.
//!
//! The model has a caller and one worker. Loom runs it in every order that the memory model allows and finds data
//! races, jobs that are done twice or not at all, and sleeps from which nobody wakes. To show that it would, the model
//! runs again with one order broken, in a process of its own since loom cannot always unwind.

use std::process::Command;

use super::Pool;
use super::team::Team;
use crate::sync::{Arc, AtomicUsize, Ordering, UnsafeCell};

/// What is wrong with a team.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    None,
    /// A worker leaves a job without publishing what it did.
    LeaveRelaxed,
    /// The caller does not look at what was published.
    CloseRelaxed,
}

/// Two jobs of two chunks. Each writes a plain cell that the caller reads when the job is over.
fn two_jobs(fault: Fault) {
    let mut model = loom::model::Builder::new();
    // More preemptions than three find little more (Musuvathi and Qadeer, PLDI 2007) and take for ever.
    model.preemption_bound = Some(3);
    model.check(move || {
        let mut team = Team::new(2);
        team.fault = fault;
        let pool = Pool::of(team, 2);
        for job in 1..=2 {
            let written = Arc::new([UnsafeCell::new(0), UnsafeCell::new(0)]);
            let runs = AtomicUsize::new(0);
            let cells = Shared(Arc::clone(&written));
            pool.run(2, |chunk, _| {
                runs.fetch_add(1, Ordering::Relaxed);
                // SAFETY: chunks write cells of their own.
                cells.cell(chunk).with_mut(|place| unsafe { *place = job });
            });
            assert_eq!(runs.load(Ordering::Relaxed), 2);
            // SAFETY: the job is over, and loom says if it is not.
            assert!(written.iter().all(|cell| cell.with(|place| unsafe { *place }) == job));
        }
    });
}

struct Shared(Arc<[UnsafeCell<usize>; 2]>);

// SAFETY: loom checks the accesses.
unsafe impl Sync for Shared {}

impl Shared {
    fn cell(&self, chunk: usize) -> &UnsafeCell<usize> {
        &self.0[chunk]
    }
}

/// Names a fault to the process that is to find it.
const FAULT: &str = "OCTAVO_MODEL_FAULT";

#[test]
fn jobs_are_done_once_and_seen() {
    two_jobs(match std::env::var(FAULT).as_deref() {
        Ok("LeaveRelaxed") => Fault::LeaveRelaxed,
        Ok("CloseRelaxed") => Fault::CloseRelaxed,
        _ => Fault::None,
    });
}

/// What the model says of a team with a fault.
fn found(fault: Fault) -> String {
    let output = Command::new(std::env::current_exe().expect("this test is a program"))
        .args(["--exact", "pool::model::jobs_are_done_once_and_seen", "--nocapture"])
        .env(FAULT, format!("{fault:?}"))
        .env("RUST_BACKTRACE", "0")
        .output()
        .expect("this test can be run");
    assert!(!output.status.success(), "{fault:?} was not found");
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

#[test]
fn a_worker_that_leaves_in_silence_is_found() {
    let words = found(Fault::LeaveRelaxed);
    assert!(words.contains("deadlock"), "{words}");
}

#[test]
fn a_caller_that_reads_too_early_is_found() {
    let words = found(Fault::CloseRelaxed);
    assert!(words.contains("left: 1"), "{words}");
}
