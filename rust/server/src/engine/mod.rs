//! The shared handle between the step loop and the doors.
//!
//! One thread runs the loop: [`EngineHandle::plan`], compute,
//! [`EngineHandle::commit`]. Doors submit requests and aborts to an inbox that
//! has a lock of its own, and read their events from sinks, so that no door
//! ever waits for a step to be planned, nor the loop for a door.

mod disk;
mod dispatch;
mod inbox;
mod pace;
mod sink;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant};

use octavo_core::{
    Deadlines, Engine, EngineLimits, EngineRequest, Error, Plan, Policy, RequestId, Result, Stats, Transfer,
};
use parking_lot::Mutex;

pub use self::disk::DiskTierConfig;
pub use self::inbox::{AbortCause, InFlight, Patience, QueueLimits};
pub use self::sink::Sink;

use self::disk::{DiskTier, Transferred};
use self::dispatch::Dispatcher;
use self::inbox::{Inbox, Mail, Refused, Submission};
use self::pace::Pace;
use crate::kv_events::{KvEventSource, KvPublisher};
use crate::metrics::{Metrics, Siblings};

/// What the step loop does next.
#[derive(Debug)]
pub enum Planned {
    /// The frame holds a step to compute.
    Step(Plan),
    /// No step for now. If steps are in flight, commit one; else ask again.
    Idle,
    /// The engine has stopped or failed: leave the loop.
    Stopped,
}

/// The engine core with its inbox and sinks. Clones share one engine.
#[derive(Clone, Debug)]
pub struct EngineHandle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: EngineLimits,
    /// When deadlines count from.
    epoch: Instant,
    inbox: Inbox,
    core: Mutex<Core>,
    disk: OnceLock<DiskTier>,
    /// The worker is there, as far as the loop knows.
    has_worker: AtomicBool,
    next_id: AtomicU64,
    metrics: Arc<Metrics>,
}

/// What only the loop touches, under one lock.
#[derive(Debug)]
struct Core {
    engine: Engine,
    dispatcher: Dispatcher,
    pace: Pace,
    epoch: Instant,
    /// Who tells routers of the prefix cache.
    publisher: Option<KvPublisher>,
    /// Kept between steps for their memory.
    mail: Mail,
    transfers: Vec<Transfer>,
}

impl EngineHandle {
    /// An engine with nothing in it.
    ///
    /// # Errors
    /// Invalid limits.
    pub fn new(limits: EngineLimits, queue: QueueLimits, metrics: Arc<Metrics>) -> Result<Self> {
        let engine = Engine::new(limits.clone())?;
        let epoch = Instant::now();
        let in_order = matches!(limits.policy, Policy::Fcfs | Policy::LongestPrefix);
        let core = Core {
            engine,
            dispatcher: Dispatcher::new(&metrics),
            pace: Pace::default(),
            epoch,
            publisher: None,
            mail: Mail::default(),
            transfers: Vec::new(),
        };
        Ok(Self(Arc::new(Shared {
            limits,
            epoch,
            inbox: Inbox::new(queue, in_order),
            core: Mutex::new(core),
            disk: OnceLock::new(),
            has_worker: AtomicBool::new(true),
            next_id: AtomicU64::new(0),
            metrics,
        })))
    }

    /// The same engine, whose prefix cache `publisher` tells of; with
    /// [`EngineLimits::kv_events`], and before it starts.
    #[must_use]
    pub fn with_publisher(self, publisher: KvPublisher) -> Self {
        publisher.set_block_size(self.0.limits.block_size);
        self.0.core.lock().publisher = Some(publisher);
        self
    }

    /// Where events of the prefix cache are published, if they are.
    pub fn kv_event_source(&self) -> Option<KvEventSource> {
        self.0.core.lock().publisher.as_ref().map(|publisher| publisher.source().clone())
    }

    /// Puts a disk tier below the host tier, before the first step; returns how
    /// many blocks of earlier runs it has.
    ///
    /// # Errors
    /// Invalid where the folder cannot be used, with what to do; internal if there
    /// is a disk tier already.
    pub fn attach_disk(&self, config: DiskTierConfig) -> Result<usize> {
        let (disk, found) = DiskTier::open(config, &self.0)?;
        let mut core = self.0.core.lock();
        for &hash in &found {
            core.engine.set_on_disk(hash, true);
        }
        let count = found.len();
        self.0.disk.set(disk).map_err(|_| Error::internal("there is a disk tier already"))?;
        Ok(count)
    }

    /// The numbers that bound the engine.
    pub fn limits(&self) -> &EngineLimits {
        &self.0.limits
    }

    /// Counters and histograms; see [`Self::read_metrics`].
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.0.metrics
    }

    /// Counters and histograms, brought up to date. No lock is held any more.
    pub fn read_metrics(&self) -> &Metrics {
        let metrics = &self.0.metrics;
        metrics.update(&self.stats(), self.has_worker() && self.failure().is_none());
        if let (Some(disk), Some(known)) = (self.0.disk.get(), metrics.disk()) {
            known.set_usage(disk.usage());
        }
        metrics
    }

    /// Loop: takes in what doors have left and plans the next step into
    /// `frame`, waiting up to `timeout` when there is nothing to do.
    ///
    /// # Errors
    /// Internal: a bug in the core, or a frame of the wrong size. Call
    /// [`Self::fail`] then.
    pub fn plan(&self, frame: &mut [u8], timeout: Duration) -> Result<Planned> {
        let deadline = inbox::deadline(timeout);
        loop {
            let mut core = self.0.core.lock();
            if !core.take_mail(&self.0.inbox) {
                return Ok(Planned::Stopped);
            }
            let plan = core.engine.plan(frame)?;
            let Core { engine, dispatcher, .. } = &mut *core;
            dispatcher.preempted(engine.preempted());
            if let Some(plan) = &plan {
                dispatcher.planned(plan);
            }
            let idle = core.engine.in_flight() == 0;
            self.finish(core);
            match plan {
                Some(plan) => return Ok(Planned::Step(plan)),
                None if idle && self.0.inbox.wait(deadline) => {}
                None => return Ok(Planned::Idle),
            }
        }
    }

    /// Loop: takes in the result of the oldest step in flight and hands its
    /// events to the doors.
    ///
    /// # Errors
    /// Internal: the result does not fit the step. Call [`Self::fail`] then.
    pub fn commit(&self, result: &[u8]) -> Result<()> {
        let mut core = self.0.core.lock();
        let now = Instant::now();
        let Core { engine, dispatcher, pace, .. } = &mut *core;
        engine.commit(result, dispatcher.events())?;
        dispatcher.dispatch(now);
        let stats = engine.stats();
        let done = stats.prompt_tokens_computed + stats.prompt_tokens_cached;
        let more_wait = self.0.inbox.in_flight().prompt_tokens > 0;
        if let Some(tokens_per_s) = pace.note(now, done, more_wait) {
            self.0.inbox.set_pace(tokens_per_s);
        }
        self.finish(core);
        Ok(())
    }

    /// Loop: the workers have died and are being started again, until
    /// [`Self::recover`].
    pub fn lost_worker(&self) {
        self.0.has_worker.store(false, Ordering::Relaxed);
        self.0.metrics.worker_is(None);
    }

    /// Loop: the worker is this process, for metrics.
    pub fn worker_is(&self, pid: u32) {
        self.0.metrics.worker_is(Some(pid));
    }

    /// False while the workers are being started again.
    pub fn has_worker(&self) -> bool {
        self.0.has_worker.load(Ordering::Relaxed)
    }

    /// Loop: the workers have started again with empty KV memory; requests are
    /// computed again from their tokens. Steps in flight are forgotten.
    pub fn recover(&self) {
        let mut core = self.0.core.lock();
        core.engine.recover();
        self.finish(core);
        self.0.has_worker.store(true, Ordering::Relaxed);
    }

    /// Ends all requests as aborted and makes the loop leave. Submissions are
    /// refused from now on.
    pub fn stop(&self) {
        self.0.inbox.close(None);
        let mut core = self.0.core.lock();
        core.take_mail(&self.0.inbox);
        core.dispatcher.abort_all();
        let publisher = core.publisher.take();
        self.finish(core);
        // Its ports are free from now on.
        drop(publisher);
    }

    /// Ends all requests with `message` and makes the loop leave: the engine
    /// cannot go on. `/health` says so from now on.
    pub fn fail(&self, message: &str) {
        let error = Error::internal(format!("the engine has failed: {message}"));
        self.0.inbox.close(Some(error.clone()));
        let mut core = self.0.core.lock();
        core.take_mail(&self.0.inbox);
        core.dispatcher.fail_all(&error);
        self.finish(core);
    }

    /// Why the engine has failed, if it has.
    pub fn failure(&self) -> Option<Error> {
        self.0.inbox.failure()
    }

    /// Unfinished sequences and waiting prompt tokens.
    pub fn in_flight(&self) -> InFlight {
        self.0.inbox.in_flight()
    }

    /// The core's state now.
    pub fn stats(&self) -> Stats {
        self.0.core.lock().engine.stats()
    }

    /// Empties the prefix cache; false when requests still hold some of it.
    pub fn reset_prefix_cache(&self) -> bool {
        let mut core = self.0.core.lock();
        let unused = core.engine.reset_prefix_cache();
        self.finish(core);
        unused
    }

    /// Door: an id for one request.
    pub(crate) fn next_id(&self) -> RequestId {
        RequestId(self.0.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Door: the deadlines of a call that arrived at `arrived`.
    pub(crate) fn deadlines(&self, arrived: Instant, patience: Patience) -> Deadlines {
        let arrived = arrived - self.0.epoch;
        let at = |timeout: Duration| u64::try_from((arrived.saturating_add(timeout)).as_nanos()).ok();
        Deadlines { start_ns: patience.queue.and_then(at), end_ns: patience.total.and_then(at) }
    }

    /// Door: submits `requests` as choices 0, 1, ... of one call, `n` a prompt, all or
    /// none, and says where their events come.
    ///
    /// # Errors
    /// Overloaded at the queue limits, while stopping, or if the call cannot be in
    /// time; invalid if it is larger than the queue; the engine's failure.
    pub(crate) fn submit(
        &self,
        requests: Vec<EngineRequest>,
        n: u32,
        arrived: Instant,
        patience: Patience,
    ) -> Result<Arc<Sink>> {
        let sink = Arc::new(Sink::default());
        let mut siblings = Arc::new(Siblings::new(n));
        let group = requests.into_iter().zip(0..).map(|(request, choice)| {
            if choice > 0 && choice % n == 0 {
                siblings = Arc::new(Siblings::new(n));
            }
            Submission { request, sink: Arc::clone(&sink), choice, siblings: Arc::clone(&siblings), arrived }
        });
        self.count_refusal(self.0.inbox.submit(group.collect(), patience))?;
        Ok(sink)
    }

    /// Door: says before a call's work begins whether [`Self::submit`] would
    /// refuse `requests` more.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub(crate) fn check_room(&self, requests: u32) -> Result<()> {
        self.count_refusal(self.0.inbox.check_room(requests))
    }

    /// Whether [`Self::submit`] would take `requests` more; counts no refusal.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub(crate) fn has_room(&self, requests: u32) -> Result<()> {
        self.0.inbox.check_room(requests).map_err(|refused| refused.error)
    }

    fn count_refusal(&self, outcome: std::result::Result<(), Refused>) -> Result<()> {
        outcome.map_err(|Refused { error, reason }| {
            if let Some(reason) = reason {
                self.0.metrics.rejected(reason);
            }
            error
        })
    }

    /// Door: ends requests whose further events nobody will read.
    pub(crate) fn abort(&self, requests: impl IntoIterator<Item = RequestId>, cause: AbortCause) {
        self.0.inbox.abort(requests, cause);
    }

    /// Tells routers what changed, lets go of the core, settles the counts and wakes the readers.
    fn finish(&self, mut core: parking_lot::MutexGuard<'_, Core>) {
        if let Core { engine, publisher: Some(publisher), .. } = &mut *core {
            let events = engine.take_kv_events();
            if !events.events.is_empty() && !publisher.publish(events) {
                self.0.metrics.kv_events_lost();
            }
        }
        let (ended, wakers) = core.dispatcher.take_outcome();
        if let Some(disk) = self.0.disk.get() {
            let Core { engine, transfers, .. } = &mut *core;
            engine.take_transfers(transfers);
            transfers.drain(..).for_each(|transfer| disk.submit(transfer));
        }
        drop(core);
        self.0.inbox.settle(ended);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Core {
    /// Moves mail from the inbox into the engine; false when it has stopped.
    fn take_mail(&mut self, inbox: &Inbox) -> bool {
        let running = inbox.take(&mut self.mail);
        let now = Instant::now();
        for Transferred { transfer, done, evicted } in self.mail.transferred.drain(..) {
            self.engine.transferred(transfer, done);
            for hash in evicted {
                self.engine.set_on_disk(hash, false);
            }
        }
        for submission in self.mail.submitted.drain(..) {
            self.dispatcher.add(&mut self.engine, submission, now);
        }
        for (request, cause) in self.mail.aborted.drain(..) {
            self.dispatcher.aborting(request, cause);
            self.engine.abort(request, self.dispatcher.events());
        }
        self.engine.expire((now - self.epoch).as_nanos() as u64, self.dispatcher.events());
        self.dispatcher.dispatch(now);
        running
    }
}
