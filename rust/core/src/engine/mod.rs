//! The engine: requests in, frames out, results in, events out.
//!
//! One owner drives it: `plan` a step into a frame, have the workers compute
//! frames in the order planned, `commit` their results in the same order.

mod commit;
mod door;
mod encode;

use std::collections::VecDeque;

pub use door::check;

use crate::error::{Error, Result};
use crate::event::{Event, EventKind, FinishReason};
use crate::frame::{FrameLayout, FrameMut};
use crate::ids::RequestId;
use crate::kv::{BlockHash, KvEvents};
use crate::limits::EngineLimits;
use crate::request::EngineRequest;
use crate::sched::{Scheduler, Step};
use crate::stats::Stats;
use crate::transfer::Transfer;

/// A step that was planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Counts from 1; the frame's header holds its low 32 bits.
    pub step: u64,
    /// Sequences in the step.
    pub rows: usize,
    /// Tokens that it computes.
    pub tokens: usize,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Engine {
    limits: EngineLimits,
    layout: FrameLayout,
    scheduler: Scheduler,
    /// Steps planned and not committed, oldest first.
    in_flight: VecDeque<Step>,
    /// Steps to plan into: as many as the pipeline is deep, less those in flight.
    spare: Vec<Step>,
}

impl Engine {
    /// An idle engine. The device's KV cache is taken to be empty.
    ///
    /// # Errors
    /// Invalid if a limit makes no sense; see [`EngineLimits::check`].
    pub fn new(limits: EngineLimits) -> Result<Self> {
        limits.check()?;
        let layout = FrameLayout::new(&limits);
        let scheduler = Scheduler::new(&limits, layout.dims);
        let depth = limits.pipeline_depth as usize;
        let spare = (0..depth).map(|_| Step::with_capacity(&layout.dims)).collect();
        Ok(Self { limits, layout, scheduler, in_flight: VecDeque::with_capacity(depth), spare })
    }

    /// The limits it was made with.
    pub fn limits(&self) -> &EngineLimits {
        &self.limits
    }

    /// Where the columns of its frames and results lie.
    pub fn layout(&self) -> &FrameLayout {
        &self.layout
    }

    /// Queues a request.
    ///
    /// # Errors
    /// Invalid as by [`check`]; overloaded if too many requests wait; internal
    /// if the id is in use. Nothing changes then and no event follows.
    pub fn add(&mut self, request: EngineRequest) -> Result<()> {
        check(&self.limits, &request)?;
        self.scheduler.add(request)
    }

    /// Ends a request now with [`FinishReason::Abort`]. Nothing happens if it has
    /// ended already or was never there.
    pub fn abort(&mut self, id: RequestId, events: &mut Vec<Event>) {
        if let Some(index) = self.scheduler.find(id) {
            self.end(index, FinishReason::Abort, events);
        }
    }

    /// Tells the time, which never goes back: ends requests whose deadlines are at
    /// or before `now_ns` with [`FinishReason::Timeout`], and pins of prefixes that
    /// are over. Call it before [`Self::plan`] if requests have either.
    pub fn expire(&mut self, now_ns: u64, events: &mut Vec<Event>) {
        self.scheduler.set_time(now_ns);
        while let Some(index) = self.scheduler.expired(now_ns) {
            self.end(index, FinishReason::Timeout, events);
        }
    }

    fn end(&mut self, index: usize, reason: FinishReason, events: &mut Vec<Event>) {
        let request = self.scheduler.sequence(index).id;
        self.scheduler.finish(index, reason);
        events.push(Event { request, kind: EventKind::Finished { reason } });
    }

    /// Writes the next step into `frame` (at least `layout().frame_bytes` bytes,
    /// aligned). `None`, and the frame is not touched, if there is nothing to
    /// compute before the next commit or the pipeline is full.
    ///
    /// # Errors
    /// Internal if the buffer is unfit; nothing changes then.
    pub fn plan(&mut self, frame: &mut [u8]) -> Result<Option<Plan>> {
        let mut columns = FrameMut::new(&self.layout, frame)?;
        self.scheduler.preempted.clear();
        let Some(mut step) = self.spare.pop() else { return Ok(None) };
        if !self.scheduler.plan(&mut step) {
            self.spare.push(step);
            return Ok(None);
        }
        encode::write(&self.scheduler, &step, &mut columns);
        let plan = Plan { step: step.number, rows: step.rows.len(), tokens: step.tokens };
        self.in_flight.push_back(step);
        Ok(Some(plan))
    }

    /// Takes in the result of the oldest step in flight and appends what came of
    /// it to `events`.
    ///
    /// # Errors
    /// Internal if no step is in flight or `result` is not its result; nothing
    /// changes then. The caller recovers the engine or gives it up.
    pub fn commit(&mut self, result: &[u8], events: &mut Vec<Event>) -> Result<()> {
        let step = self.in_flight.front().ok_or_else(|| Error::internal("no step is in flight"))?;
        let columns = commit::open(&self.layout, step, result)?;
        if let Some(step) = self.in_flight.pop_front() {
            commit::apply(&mut self.scheduler, &self.limits, &step, &columns, events);
            self.spare.push(step);
        }
        if cfg!(debug_assertions) && !self.has_work() {
            self.check_laws()?;
        }
        Ok(())
    }

    /// The workers are gone and come back with an empty KV cache: forgets blocks,
    /// slots, the device's prefix cache and steps in flight; the tiers below the
    /// device keep what committed steps brought there. Unfinished requests wait
    /// again and are computed from their tokens; their events go on where they
    /// stopped.
    pub fn recover(&mut self) {
        for step in self.in_flight.drain(..) {
            self.scheduler.abandon_copies(&step);
            self.spare.push(step);
        }
        self.scheduler.recover();
    }

    /// Empties the prefix cache in all tiers. Blocks that running requests hold leave it too
    /// and are freed with them; false if there were such.
    pub fn reset_prefix_cache(&mut self) -> bool {
        self.scheduler.forget_all()
    }

    /// What entered and left the prefix cache since the last call, if
    /// [`EngineLimits::kv_events`] asks for it. Call it after each commit and each
    /// reset: little more than the changes of a step are kept.
    pub fn take_kv_events(&mut self) -> KvEvents {
        self.scheduler.take_kv_events()
    }

    /// Appends to `transfers` what is to be done for the disk tier, after each
    /// plan, commit and added request. Each store and fetch is answered by
    /// [`Self::transferred`]; transfers of one content are done in order.
    pub fn take_transfers(&mut self, transfers: &mut Vec<Transfer>) {
        if let Some(tiers) = self.scheduler.tiers() {
            tiers.take_transfers(transfers);
        }
    }

    /// A store or fetch is done, or has failed and changed nothing.
    pub fn transferred(&mut self, transfer: Transfer, done: bool) {
        if let Some(tiers) = self.scheduler.tiers() {
            tiers.transferred(transfer, done);
        }
    }

    /// The disk tier has this content already, or no longer.
    pub fn set_on_disk(&mut self, hash: BlockHash, is_there: bool) {
        if let Some(tiers) = self.scheduler.tiers() {
            tiers.set_on_disk(hash, is_there);
        }
    }

    /// Requests that the last [`Self::plan`] put back, to be computed again.
    pub fn preempted(&self) -> &[RequestId] {
        &self.scheduler.preempted
    }

    /// Counters and levels.
    pub fn stats(&self) -> Stats {
        self.scheduler.stats()
    }

    /// True while a request has not ended.
    pub fn has_work(&self) -> bool {
        self.scheduler.has_work()
    }

    /// Steps planned and not committed.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Checks the laws of memory and scheduling, for tests and simulations.
    ///
    /// # Errors
    /// Internal, naming the law that is broken. Costs O(blocks).
    pub fn check_laws(&self) -> Result<()> {
        self.scheduler.check_laws()
    }
}
