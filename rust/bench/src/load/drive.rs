//! Runs one level of load: takes conversations from the feed, has them, counts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::task::JoinSet;

use super::dialogue::Dialogue;
use super::feed::{self, Job};
use super::progress::Progress;
use super::record::{Failure, Record};
use super::slo::Slo;
use super::target::Target;
use super::totals::Totals;
use super::workload::{Conversation, Workload};
use crate::arrivals::Arrivals;
use crate::error::Result;

/// What a level of load is made of.
#[derive(Debug)]
pub struct Level<'a> {
    /// Whom to ask.
    pub target: &'a Arc<Target>,
    /// What to ask.
    pub workload: &'a Workload,
    /// When to ask.
    pub arrivals: Arrivals,
    /// Conversations `first..first + count` of the workload.
    pub conversations: (u64, u64),
    /// Between a reply and the next turn.
    pub think_time: Duration,
    /// What makes a request good.
    pub slos: &'a [Slo],
    /// Seed of the arrivals.
    pub seed: u64,
}

/// The end of one request.
type Outcome = std::result::Result<Record, Failure>;

impl Level<'_> {
    /// Runs the level to the end of its last request.
    ///
    /// # Errors
    /// A feed that cannot be started; failed requests are counted, not errors.
    pub async fn run(&self) -> Result<Totals> {
        let requests = self.conversations.1 * u64::from(self.workload.turns());
        let jobs = feed::start(self.workload, &self.arrivals, self.conversations, self.seed)?;
        let (outcomes, mut ended) = mpsc::unbounded_channel();
        let mut totals = Totals::start();
        let mut progress = Progress::new(requests);
        let target = Arc::clone(self.target);
        let drive = tokio::spawn(drive(self.arrivals, jobs, target, self.think_time, outcomes));
        while let Some(outcome) = ended.recv().await {
            match outcome {
                Ok(record) => totals.add(&record, self.slos),
                Err(failure) => totals.fail(failure),
            }
            progress.show(totals.completed + totals.failed, totals.failed);
        }
        totals.end();
        progress.clear();
        if let Err(error) = drive.await {
            std::panic::resume_unwind(error.into_panic());
        }
        Ok(totals)
    }
}

/// Has every conversation; each request's outcome goes to `outcomes`.
async fn drive(
    arrivals: Arrivals,
    mut jobs: mpsc::Receiver<Job>,
    target: Arc<Target>,
    think_time: Duration,
    outcomes: mpsc::UnboundedSender<Outcome>,
) {
    let mut tasks = JoinSet::new();
    match arrivals {
        Arrivals::Closed { concurrency } => {
            let jobs = Arc::new(Mutex::new(jobs));
            for _ in 0..concurrency {
                let (jobs, target, outcomes) = (Arc::clone(&jobs), Arc::clone(&target), outcomes.clone());
                tasks.spawn(async move {
                    loop {
                        let Some(job) = jobs.lock().await.recv().await else { return };
                        let scheduled = Instant::now();
                        converse(&target, job.conversation, scheduled, think_time, &outcomes).await;
                    }
                });
            }
        }
        Arrivals::Open { max_concurrency, .. } => {
            let places = Arc::new(Semaphore::new(
                max_concurrency.map_or(Semaphore::MAX_PERMITS, |most| most as usize),
            ));
            while let Some(job) = jobs.recv().await {
                let (target, outcomes, places) = (Arc::clone(&target), outcomes.clone(), Arc::clone(&places));
                tasks.spawn(async move {
                    // Never closed, so a place always comes.
                    let _place = places.acquire().await;
                    let scheduled = job.scheduled.unwrap_or_else(Instant::now);
                    converse(&target, job.conversation, scheduled, think_time, &outcomes).await;
                });
            }
        }
    }
    tasks.join_all().await;
}

/// Has one conversation. After a failure its later turns are not sent, and
/// count as failed.
async fn converse(
    target: &Target,
    conversation: Conversation,
    mut scheduled: Instant,
    think_time: Duration,
    outcomes: &mpsc::UnboundedSender<Outcome>,
) {
    let mut dialogue = Dialogue::new(&target.template);
    let mut turns = conversation.iter();
    while let Some(turn) = turns.next() {
        let outcome = target.client.stream(&target.uri, dialogue.ask(turn), scheduled).await;
        let failed = outcome.is_err();
        let outcome = outcome.map(|reply| {
            dialogue.reply(&reply.text);
            reply.record
        });
        // The receiver lives until every sender is gone.
        let _ = outcomes.send(outcome);
        if failed {
            for _ in turns.by_ref() {
                let _ = outcomes.send(Err(Failure::new("not_sent", "an earlier turn failed")));
            }
        }
        scheduled = Instant::now() + think_time;
        if turns.len() > 0 && !think_time.is_zero() {
            tokio::time::sleep_until(scheduled.into()).await;
        }
    }
}
