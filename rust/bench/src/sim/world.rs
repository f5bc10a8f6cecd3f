//! The simulation's loop: requests, steps and aborts in the order of virtual time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::iter::Peekable;
use std::time::{Duration, Instant};

use octavo_core::fake::FakeWorker;
use octavo_core::frame::Buffer;
use octavo_core::{Engine, EngineLimits, Event, Kind, Plan, RequestId};

use super::args::{Check, DeviceArgs};
use super::bound::Bound;
use super::device::{Device, StepTime};
use super::ledger::{Ledger, Totals};
use super::trace::Arrival;
use crate::distribution::Distribution;
use crate::error::{Error, Result};

/// Steps between two looks at how old every request is.
const STEPS_PER_AGE_CHECK: u64 = 1024;

/// What a simulation found.
#[derive(Debug)]
pub struct Outcome {
    /// Sums over the requests.
    pub totals: Totals,
    /// The engine's own counters at the end.
    pub stats: octavo_core::Stats,
    /// Virtual time at the end.
    pub duration: Duration,
    /// Real time of plan and commit, a step.
    pub core: Distribution,
    /// Rows of all steps.
    pub rows: u64,
    /// Tokens of all steps.
    pub tokens: u64,
    /// Times that the device died.
    pub deaths: u64,
}

/// A frame that the device has.
struct InFlight {
    frame: Buffer,
    plan: Plan,
    ends: Duration,
    planning: Duration,
}

/// See the module's documentation.
pub(super) struct World {
    engine: Engine,
    device: Box<dyn Device>,
    step_time: StepTime,
    check: Check,
    kill_every: u64,
    arrivals: Peekable<Box<dyn Iterator<Item = Arrival>>>,
    aborts: BinaryHeap<Reverse<(Duration, u64)>>,
    in_flight: VecDeque<InFlight>,
    spare: Vec<Buffer>,
    result: Buffer,
    events: Vec<Event>,
    ledger: Ledger,
    now: Duration,
    core: Distribution,
    rows: u64,
    tokens: u64,
    deaths: u64,
}

impl World {
    /// A world in which nothing has happened. Requests must end within `bound`.
    ///
    /// # Errors
    /// Limits that make no engine, or flags out of range.
    pub fn new(
        limits: EngineLimits,
        bound: Bound,
        args: &DeviceArgs,
        check: Check,
        arrivals: Box<dyn Iterator<Item = Arrival>>,
        device: Box<dyn Device>,
    ) -> Result<Self> {
        let step_time = StepTime::new(args)?;
        let oracle = oracle(&limits, args.deep_reads);
        let ledger = Ledger::new(oracle, limits.context_len() as usize, bound);
        let engine = Engine::new(limits).map_err(|error| Error::invalid(error.to_string()))?;
        let result = Buffer::new(engine.layout().result_bytes);
        Ok(Self {
            engine,
            device,
            step_time,
            check,
            kill_every: args.kill_every,
            arrivals: arrivals.peekable(),
            aborts: BinaryHeap::new(),
            in_flight: VecDeque::new(),
            spare: Vec::new(),
            result,
            events: Vec::new(),
            ledger,
            now: Duration::ZERO,
            core: Distribution::default(),
            rows: 0,
            tokens: 0,
            deaths: 0,
        })
    }

    /// Runs to the end of the trace and of all its requests.
    ///
    /// # Errors
    /// A violation, with the virtual time and the step.
    pub fn run(mut self) -> Result<Outcome> {
        let end = self.run_to_end();
        let (now, step) = (self.now.as_secs_f64(), self.engine.stats().steps);
        end.map_err(|error| match error {
            Error::Violation(what) => Error::violation(format!("at {now:.6} s, step {step}: {what}")),
            other => other,
        })?;
        Ok(Outcome {
            totals: self.ledger.totals,
            stats: self.engine.stats(),
            duration: self.now,
            core: self.core,
            rows: self.rows,
            tokens: self.tokens,
            deaths: self.deaths,
        })
    }

    fn run_to_end(&mut self) -> Result<()> {
        loop {
            self.take_arrivals()?;
            self.take_aborts()?;
            while self.in_flight.front().is_some_and(|step| step.ends <= self.now) {
                self.commit()?;
            }
            while self.plan()? {}
            match self.next_time() {
                Some(next) => self.now = next,
                None => break,
            }
        }
        self.engine.check_laws().map_err(violation)?;
        let stats = self.engine.stats();
        if self.engine.has_work() || self.ledger.live() > 0 {
            return Err(Error::violation(format!(
                "{} requests wait and {} run, but no step comes of it",
                stats.waiting, stats.running
            )));
        }
        match stats.blocks_used {
            0 => Ok(()),
            used => Err(Error::violation(format!("{used} blocks are leased though every request has ended"))),
        }
    }

    /// The next time at which something happens. An abort alone is nothing.
    fn next_time(&mut self) -> Option<Duration> {
        let arrival = self.arrivals.peek().map(|arrival| arrival.at);
        let end = self.in_flight.front().map(|step| step.ends);
        let next = [arrival, end].into_iter().flatten().min()?;
        let abort = self.aborts.peek().map(|Reverse((at, _))| *at);
        Some(abort.map_or(next, |abort| next.min(abort)))
    }

    fn take_arrivals(&mut self) -> Result<()> {
        while let Some(arrival) = self.arrivals.next_if(|arrival| arrival.at <= self.now) {
            let id = arrival.request.id.0;
            match self.engine.add(arrival.request.clone()) {
                Ok(()) => {
                    self.ledger.arrive(arrival.request, arrival.at, self.engine.stats().steps);
                    self.aborts.extend(arrival.abort_at.map(|at| Reverse((at, id))));
                }
                Err(error) if error.kind() == Kind::Overloaded => self.ledger.totals.refused += 1,
                Err(error) => return Err(Error::invalid(format!("request {id} of the trace: {error}"))),
            }
        }
        Ok(())
    }

    fn take_aborts(&mut self) -> Result<()> {
        while let Some(&Reverse((at, id))) = self.aborts.peek()
            && at <= self.now
        {
            self.aborts.pop();
            self.engine.abort(RequestId(id), &mut self.events);
            self.take_events()?;
        }
        Ok(())
    }

    /// Plans a step if there is one to plan.
    fn plan(&mut self) -> Result<bool> {
        let bytes = self.engine.layout().frame_bytes;
        let mut frame = self.spare.pop().unwrap_or_else(|| Buffer::new(bytes));
        let start = Instant::now();
        let plan = self.engine.plan(frame.bytes_mut());
        let planning = start.elapsed();
        let Some(plan) = plan.map_err(violation)? else {
            self.spare.push(frame);
            return Ok(false);
        };
        let takes = self.step_time.of(self.engine.layout(), frame.bytes()).map_err(violation)?;
        let starts = self.in_flight.back().map_or(self.now, |step| step.ends.max(self.now));
        self.in_flight.push_back(InFlight { frame, plan, ends: starts + takes, planning });
        self.rows += plan.rows as u64;
        self.tokens += plan.tokens as u64;
        Ok(true)
    }

    /// Computes and commits the oldest step in flight, or loses it to the
    /// device's death.
    fn commit(&mut self) -> Result<()> {
        let Some(step) = self.in_flight.pop_front() else { return Ok(()) };
        if self.kill_every > 0 && step.plan.step.is_multiple_of(self.kill_every) {
            self.deaths += 1;
            self.device.die();
            self.ledger.died();
            self.spare.push(step.frame);
            self.spare.extend(self.in_flight.drain(..).map(|step| step.frame));
            self.engine.recover();
            return Ok(());
        }
        self.device.run(step.frame.bytes(), self.result.bytes_mut()).map_err(violation)?;
        let start = Instant::now();
        let committed = self.engine.commit(self.result.bytes(), &mut self.events);
        self.core.record(step.planning + start.elapsed());
        committed.map_err(violation)?;
        self.spare.push(step.frame);
        self.take_events()?;
        if self.check == Check::Every {
            self.engine.check_laws().map_err(violation)?;
        }
        if step.plan.step.is_multiple_of(STEPS_PER_AGE_CHECK) {
            self.ledger.check_ages(self.engine.stats().steps)?;
        }
        Ok(())
    }

    fn take_events(&mut self) -> Result<()> {
        let step = self.engine.stats().steps;
        for event in self.events.drain(..) {
            self.ledger.take(&event, self.now, step)?;
        }
        Ok(())
    }
}

/// A device that draws tokens as the simulation's does.
pub fn oracle(limits: &EngineLimits, deep_reads: bool) -> FakeWorker {
    let worker = FakeWorker::new(limits);
    if deep_reads { worker } else { worker.with_shallow_reads() }
}

#[allow(clippy::needless_pass_by_value, reason = "it is given to map_err")]
fn violation(error: octavo_core::Error) -> Error {
    Error::violation(error.message())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::args::SimArgs;
    use super::super::trace;
    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        sim: SimArgs,
    }

    /// A trace in which better priorities keep coming, run under one policy and held to the bound of another.
    fn run(policy: &str, bound: &str) -> Result<Outcome> {
        let args = |policy: &str| {
            let flags = format!(
                "sim --num-requests 400 --input-len 20 --output-len 10 --request-rate 12 --num-priorities 9 \
                 --max-num-seqs 1 --scheduling-policy {policy}"
            );
            Cli::try_parse_from(flags.split_whitespace()).unwrap().sim
        };
        let (args, bound) = (args(policy), Bound::new(&args(bound).engine.limits()));
        let limits = args.engine.limits();
        let device = Box::new(oracle(&limits, false));
        let arrivals = trace::arrivals(&args.trace, limits.vocab_size)?;
        World::new(limits, bound, &args.device, args.check, arrivals, device)?.run()
    }

    #[test]
    fn who_waits_longer_than_the_policy_allows_is_found() {
        assert!(run("fcfs", "fcfs").is_ok());
        assert!(run("priority", "priority").is_ok());
        match run("priority", "fcfs") {
            Err(Error::Violation(message)) => assert!(message.contains("it starves"), "{message}"),
            other => panic!("starvation was not found: {other:?}"),
        }
    }
}
