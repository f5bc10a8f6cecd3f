//! The order of jobs: fetches before stores and deletions, jobs of one hash as they came, `Clear` alone.

use crate::{Hash, Job};
use std::collections::{HashMap, VecDeque};

/// Jobs that wait, and the hashes of those that run. Not a lock: the store holds one around it.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    fetches: VecDeque<Job>,
    writes: VecDeque<Job>,
    /// Hashes with a job that is ready or runs; the value: their later jobs, which wait for it.
    busy: HashMap<Hash, VecDeque<Job>>,
    barrier: Barrier,
    /// What was submitted after a `Clear` that is not done yet.
    behind: VecDeque<Job>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Barrier {
    #[default]
    None,
    /// A `Clear` waits for the jobs before it.
    Waiting,
    /// It is ready, or runs.
    Up,
}

impl Queue {
    pub(crate) fn push(&mut self, job: Job) {
        if self.barrier != Barrier::None {
            self.behind.push_back(job);
            return;
        }
        let Some(hash) = job.hash() else {
            self.barrier = Barrier::Waiting;
            self.raise();
            return;
        };
        if let Some(later) = self.busy.get_mut(&hash) {
            later.push_back(job);
        } else {
            self.busy.insert(hash, VecDeque::new());
            self.ready(job);
        }
    }

    /// The next job that may run now: the oldest fetch, else the oldest other job unless only fetches are wanted.
    /// Whoever takes it says `finish` afterwards.
    pub(crate) fn take(&mut self, fetches_only: bool) -> Option<Job> {
        self.fetches.pop_front().or_else(|| if fetches_only { None } else { self.writes.pop_front() })
    }

    pub(crate) fn finish(&mut self, job: &Job) {
        if let Some(hash) = job.hash() {
            if let Some(next) = self.busy.get_mut(&hash).and_then(VecDeque::pop_front) {
                self.ready(next);
            } else {
                self.busy.remove(&hash);
                self.raise();
            }
        } else {
            self.barrier = Barrier::None;
            // Up to the next `Clear`, behind which the rest queues again.
            while self.barrier == Barrier::None
                && let Some(job) = self.behind.pop_front()
            {
                self.push(job);
            }
        }
    }

    /// Nothing waits and nothing runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.busy.is_empty() && self.barrier == Barrier::None
    }

    fn ready(&mut self, job: Job) {
        let lane = if matches!(job, Job::Fetch { .. }) { &mut self.fetches } else { &mut self.writes };
        lane.push_back(job);
    }

    fn raise(&mut self) {
        if self.barrier == Barrier::Waiting && self.busy.is_empty() {
            self.barrier = Barrier::Up;
            self.writes.push_back(Job::Clear);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(name: u8) -> Job {
        Job::Store { hash: [name; 32], slot: 0 }
    }

    fn fetch(name: u8) -> Job {
        Job::Fetch { hash: [name; 32], slot: 0 }
    }

    fn delete(name: u8) -> Job {
        Job::Delete { hash: [name; 32] }
    }

    /// Pushes all, then takes and finishes one by one.
    fn order(jobs: &[Job]) -> Vec<Job> {
        let mut queue = Queue::default();
        for job in jobs {
            queue.push(*job);
        }
        let mut order = Vec::new();
        while let Some(job) = queue.take(false) {
            order.push(job);
            queue.finish(&job);
        }
        assert!(queue.is_idle());
        order
    }

    #[test]
    fn a_fetch_goes_before_stores_of_other_blocks() {
        assert_eq!(order(&[store(1), store(2), fetch(3)]), [fetch(3), store(1), store(2)]);
    }

    #[test]
    fn jobs_of_one_block_keep_their_order() {
        let jobs = [store(1), delete(1), fetch(1), store(1), fetch(1)];
        assert_eq!(order(&jobs), jobs);
    }

    #[test]
    fn a_block_with_a_running_job_is_not_given_to_a_second_thread() {
        let mut queue = Queue::default();
        queue.push(fetch(1));
        queue.push(delete(1));
        let first = queue.take(true).unwrap();
        assert_eq!(queue.take(false), None);
        queue.finish(&first);
        assert_eq!(queue.take(true), None, "a deletion is not for the thread that only fetches");
        assert_eq!(queue.take(false), Some(delete(1)));
        queue.finish(&delete(1));
        assert!(queue.is_idle());
    }

    #[test]
    fn clear_comes_after_all_before_it_and_before_all_after_it() {
        assert_eq!(
            order(&[store(1), store(2), Job::Clear, fetch(2), store(3), Job::Clear, Job::Clear, fetch(1)]),
            [store(1), store(2), Job::Clear, fetch(2), store(3), Job::Clear, Job::Clear, fetch(1)]
        );
    }

    #[test]
    fn clear_waits_for_jobs_that_run() {
        let mut queue = Queue::default();
        queue.push(fetch(1));
        let running = queue.take(true).unwrap();
        queue.push(Job::Clear);
        queue.push(fetch(2));
        assert_eq!(queue.take(false), None);
        queue.finish(&running);
        assert_eq!(queue.take(false), Some(Job::Clear));
        assert_eq!(queue.take(false), None);
        queue.finish(&Job::Clear);
        assert_eq!(queue.take(false), Some(fetch(2)));
    }
}
