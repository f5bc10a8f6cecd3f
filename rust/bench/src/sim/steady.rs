//! The core's cost of a step in which every sequence decodes.

use std::time::{Duration, Instant};

use octavo_core::frame::{Buffer, Frame, MAGIC, StepResultMut, VERSION, header};
use octavo_core::{Engine, EngineLimits, EngineRequest, Event, Policy, Result};
use serde_json::{Map, Value};

use super::request::{VOCAB_SIZE, request, tokens};
use crate::distribution::Distribution;
use crate::output::{number, put_summary, row, summary_head, summary_row};
use crate::random::{Purpose, stream};

const BLOCK_SIZE: u32 = 16;
/// Prompt tokens a step.
const PREFILL_TOKENS: u32 = 8192;
/// Steps before measuring.
const WARM_UP: u32 = 64;

/// An engine whose device does nothing but answer, so that only the core costs.
#[derive(Debug)]
pub struct Loop {
    /// The engine.
    pub engine: Engine,
    frame: Buffer,
    result: Buffer,
    events: Vec<Event>,
}

impl Loop {
    /// An idle engine.
    ///
    /// # Errors
    /// Limits that make no engine.
    pub fn new(limits: EngineLimits) -> Result<Self> {
        let engine = Engine::new(limits)?;
        let frame = Buffer::new(engine.layout().frame_bytes);
        let result = Buffer::new(engine.layout().result_bytes);
        Ok(Self { engine, frame, result, events: Vec::new() })
    }

    /// Plans a step. False if there is nothing to plan.
    ///
    /// # Errors
    /// A fault of the engine.
    pub fn plan(&mut self) -> Result<bool> {
        Ok(self.engine.plan(self.frame.bytes_mut())?.is_some())
    }

    /// Answers for the device: token 7 to every row.
    ///
    /// # Errors
    /// A fault of the engine.
    pub fn answer(&mut self) -> Result<()> {
        let frame = Frame::new(self.engine.layout(), self.frame.bytes())?;
        let result = StepResultMut::new(self.engine.layout(), self.result.bytes_mut())?;
        result.header[header::MAGIC] = MAGIC;
        result.header[header::VERSION] = VERSION;
        for place in [header::STEP, header::ROWS] {
            result.header[place] = frame.header[place];
        }
        result.token[..frame.header[header::ROWS] as usize].fill(7);
        Ok(())
    }

    /// Takes the answer in.
    ///
    /// # Errors
    /// A fault of the engine.
    pub fn commit(&mut self) -> Result<()> {
        self.events.clear();
        self.engine.commit(self.result.bytes(), &mut self.events)
    }

    /// One step: the real time of its plan and commit.
    ///
    /// # Errors
    /// A fault of the engine.
    pub fn step(&mut self) -> Result<Duration> {
        let start = Instant::now();
        let planned = self.plan()?;
        let mut core = start.elapsed();
        if planned {
            self.answer()?;
            let start = Instant::now();
            self.commit()?;
            core += start.elapsed();
        }
        Ok(core)
    }
}

/// Limits of an engine that measures: `running` sequences of up to `length` tokens, and no pressure.
pub fn limits(running: u32, length: u32) -> EngineLimits {
    EngineLimits {
        block_size: BLOCK_SIZE,
        num_blocks: running * (length.div_ceil(BLOCK_SIZE) + 1),
        groups: Vec::new(),
        max_model_len: length.max(2),
        max_num_seqs: running,
        max_num_batched_tokens: PREFILL_TOKENS + running,
        long_prefill_token_threshold: 0,
        max_num_queued_reqs: running,
        max_logprobs: 0,
        vocab_size: VOCAB_SIZE,
        watermark: 0.0,
        enable_prefix_caching: true,
        max_pinned_share: 0.5,
        kv_events: false,
        host_blocks: 0,
        host_load_tokens: 0.0,
        disk_tier: false,
        tenant_weights: Vec::new(),
        policy: Policy::Fcfs,
        pipeline_depth: 1,
    }
}

/// A request with a random prompt of its own.
pub fn prompted(id: u64, input_len: u32, output_len: u32) -> EngineRequest {
    let mut rng = stream(0, Purpose::Request, id);
    request(id, tokens(&mut rng, input_len, VOCAB_SIZE).collect(), output_len)
}

/// An engine in which `running` sequences of `context` tokens decode, and will for `steps` steps.
///
/// # Errors
/// Numbers that make no engine.
pub fn decoding(running: u32, context: u32, steps: u32) -> Result<Loop> {
    // The first sequences decode while the last ones' prompts are computed, in chunks cut to whole blocks.
    let filling = u64::from(running) * u64::from(context + BLOCK_SIZE) / u64::from(PREFILL_TOKENS / 2);
    let output_len = steps + 2 * WARM_UP + filling as u32;
    let mut engine = Loop::new(limits(running, context + output_len))?;
    for id in 0..u64::from(running) {
        engine.engine.add(prompted(id, context, output_len))?;
    }
    while engine.engine.stats().waiting > 0 || engine.engine.stats().generated_tokens < u64::from(running) {
        engine.step()?;
    }
    for _ in 0..WARM_UP {
        engine.step()?;
    }
    Ok(engine)
}

/// What the steady state costs.
#[derive(Debug)]
pub struct Steady {
    running: u32,
    context: u32,
    core: Distribution,
}

/// Measures `steps` steps.
///
/// # Errors
/// Numbers that make no engine.
pub fn measure(running: u32, context: u32, steps: u32) -> Result<Steady> {
    let mut engine = decoding(running, context, steps)?;
    let mut core = Distribution::default();
    for _ in 0..steps {
        core.record(engine.step()?);
    }
    Ok(Steady { running, context, core })
}

impl Steady {
    fn per_step(&self) -> f64 {
        self.core.summary_ns().map_or(0.0, |summary| summary.p50)
    }

    /// The figures; `core_ns_per_step` is the median.
    pub fn json(&self) -> Map<String, Value> {
        let mut json = Map::new();
        json.insert("running".into(), self.running.into());
        json.insert("context".into(), self.context.into());
        json.insert("steps".into(), self.core.count().into());
        json.insert("core_ns_per_step".into(), number(self.per_step()));
        json.insert("core_ns_per_seq".into(), number(self.per_step() / f64::from(self.running)));
        put_summary(&mut json, "core_ns", self.core.summary_ns());
        json
    }

    /// The figures as a table.
    pub fn table(&self) -> String {
        let per_seq = self.per_step() / f64::from(self.running);
        row("sequences decoding", format_args!("{} from {} tokens on", self.running, self.context))
            + &row("core ns/step, median", format_args!("{:.0}", self.per_step()))
            + &row("core ns/step and sequence", format_args!("{per_seq:.1}"))
            + &summary_head("\nreal nanoseconds")
            + &summary_row("core, a step", self.core.summary_ns())
    }
}
