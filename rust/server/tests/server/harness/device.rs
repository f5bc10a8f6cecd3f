//! The step loop on a thread of its own, with the core's fake device.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use octavo_core::fake::FakeWorker;
use octavo_core::frame::{Buffer, FrameLayout};
use octavo_server::{EngineHandle, Planned};
use parking_lot::{Condvar, Mutex};

/// Holds the device before a step.
#[derive(Clone, Default)]
pub struct Gate(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// How many steps may still pass; `None` is any number.
    left: Mutex<Option<usize>>,
    changed: Condvar,
}

impl Gate {
    /// The device stops before its next step.
    pub fn shut(&self) {
        self.allow(0);
    }

    /// The device stops after `steps` more steps.
    pub fn allow(&self, steps: usize) {
        *self.0.left.lock() = Some(steps);
        self.0.changed.notify_all();
    }

    /// The device goes on.
    pub fn open(&self) {
        *self.0.left.lock() = None;
        self.0.changed.notify_all();
    }

    fn pass(&self) {
        let mut left = self.0.left.lock();
        self.0.changed.wait_while(&mut left, |left| *left == Some(0));
        *left = left.map(|left| left - 1);
    }
}

/// The step loop; it ends with the engine.
pub struct Device {
    gate: Gate,
    engine: EngineHandle,
    thread: Option<JoinHandle<()>>,
}

impl Device {
    pub fn start(engine: EngineHandle, worker: FakeWorker, pace: Option<Duration>) -> Self {
        let gate = Gate::default();
        let (loop_engine, loop_gate) = (engine.clone(), gate.clone());
        let main = move || run(&loop_engine, &loop_gate, worker, pace);
        let thread = std::thread::Builder::new().name("device".to_owned()).spawn(main).unwrap();
        Self { gate, engine, thread: Some(thread) }
    }

    pub fn gate(&self) -> Gate {
        self.gate.clone()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.engine.stop();
        self.gate.open();
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

fn run(engine: &EngineHandle, gate: &Gate, mut worker: FakeWorker, pace: Option<Duration>) {
    let limits = engine.limits();
    let layout = FrameLayout::new(limits);
    let mut spare: Vec<_> = (0..=limits.pipeline_depth).map(|_| Buffer::new(layout.frame_bytes)).collect();
    let mut result = Buffer::new(layout.result_bytes);
    let mut in_flight = VecDeque::new();
    loop {
        let mut frame = spare.pop().unwrap();
        let timeout = Duration::from_secs(if in_flight.is_empty() { 60 } else { 0 });
        match engine.plan(frame.bytes_mut(), timeout).unwrap() {
            Planned::Step(_) => in_flight.push_back(frame),
            Planned::Stopped => return,
            Planned::Idle => {
                spare.push(frame);
                if let Some(frame) = in_flight.pop_front() {
                    gate.pass();
                    let begin = Instant::now();
                    worker.run(frame.bytes(), result.bytes_mut()).unwrap();
                    if let Some(rest) = pace.and_then(|pace| pace.checked_sub(begin.elapsed())) {
                        std::thread::sleep(rest);
                    }
                    engine.commit(result.bytes()).unwrap();
                    spare.push(frame);
                }
            }
        }
    }
}
