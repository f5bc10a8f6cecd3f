//! What the core costs: planning and committing decode steps, and looking up
//! and inserting long prefixes. `cargo run --release --example step_cost -p octavo-core`

#![allow(clippy::print_stdout, reason = "it reports to a terminal")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use octavo_core::frame::{Buffer, Frame, MAGIC, StepResultMut, VERSION, header};
use octavo_core::{
    Deadlines, Engine, EngineLimits, EngineRequest, Event, Policy, RequestId, Result, SamplingParams,
    StopRules, Token,
};

const STEPS: u32 = 2000;

fn main() -> Result<()> {
    for running in [256, 1024] {
        for context in [512, 4096] {
            let cost = decode_step(running, context)?;
            let (total, each) = (cost.as_nanos(), cost.as_nanos() / u128::from(running));
            println!(
                "decode, {running} running at {context} tokens: {total} ns a step, {each} ns a sequence"
            );
        }
    }
    let (insert, lookup) = prefix(8192)?;
    println!(
        "8,192-token prompts in a million-token tree: first plan {} ns, plan of a cached one {} ns",
        insert.as_nanos(),
        lookup.as_nanos()
    );
    Ok(())
}

fn limits(running: u32, context: u32) -> EngineLimits {
    EngineLimits {
        block_size: 16,
        num_blocks: running * ((context + STEPS).div_ceil(16) + 2),
        max_model_len: 16_384,
        max_num_seqs: running,
        max_num_batched_tokens: 8192,
        long_prefill_token_threshold: 0,
        max_num_queued_reqs: 4096,
        max_logprobs: 20,
        vocab_size: 50_000,
        watermark: 0.0,
        enable_prefix_caching: true,
        policy: Policy::Fcfs,
        pipeline_depth: 1,
    }
}

fn request(id: u64, len: u32, max_tokens: u32) -> EngineRequest {
    let prompt: Arc<[Token]> = (0..len).map(|i| (i.wrapping_mul(31) + id as u32 * 7919) % 50_000).collect();
    EngineRequest {
        id: RequestId(id),
        prompt,
        sampling: SamplingParams {
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            seed: id,
            logprobs: None,
            prompt_logprobs: None,
            logit_bias: Vec::new(),
        },
        stop: StopRules { max_tokens, min_tokens: 0, eos_token_ids: vec![2], stop_token_ids: Vec::new() },
        priority: 0,
        tenant: 0,
        deadlines: Deadlines::default(),
        cache_salt: 0,
    }
}

/// An engine with buffers for one step.
struct Bench {
    engine: Engine,
    frame: Buffer,
    result: Buffer,
    events: Vec<Event>,
}

impl Bench {
    fn new(limits: EngineLimits) -> Result<Self> {
        let engine = Engine::new(limits)?;
        let frame = Buffer::new(engine.layout().frame_bytes);
        let result = Buffer::new(engine.layout().result_bytes);
        Ok(Self { engine, frame, result, events: Vec::new() })
    }

    /// Times of plan and commit of one step that samples the token 7 + row.
    fn step(&mut self) -> Result<(Duration, Duration)> {
        let start = Instant::now();
        let plan = self.engine.plan(self.frame.bytes_mut())?;
        let planned = start.elapsed();
        if plan.is_none() {
            return Ok((planned, Duration::ZERO));
        }
        let frame = Frame::new(self.engine.layout(), self.frame.bytes())?;
        let result = StepResultMut::new(self.engine.layout(), self.result.bytes_mut())?;
        result.header[header::MAGIC] = MAGIC;
        result.header[header::VERSION] = VERSION;
        result.header[header::STEP] = frame.header[header::STEP];
        result.header[header::ROWS] = frame.header[header::ROWS];
        for row in 0..frame.header[header::ROWS] as usize {
            result.token[row] = 7 + row as i32;
        }
        let start = Instant::now();
        self.engine.commit(self.result.bytes(), &mut self.events)?;
        let committed = start.elapsed();
        self.events.clear();
        Ok((planned, committed))
    }
}

/// Median cost of a step in which every sequence decodes.
fn decode_step(running: u32, context: u32) -> Result<Duration> {
    let mut bench = Bench::new(limits(running, context))?;
    for id in 0..running {
        bench.engine.add(request(u64::from(id), context, STEPS + 1000))?;
    }
    while bench.engine.stats().generated_tokens == 0 || bench.engine.stats().waiting > 0 {
        bench.step()?;
    }
    bench.step()?;
    let mut costs = Vec::new();
    for _ in 0..STEPS / 2 {
        let (plan, commit) = bench.step()?;
        costs.push(plan + commit);
    }
    costs.sort_unstable();
    Ok(costs[costs.len() / 2])
}

/// Median cost of planning a prompt that is new, and one that is in the cache.
fn prefix(len: u32) -> Result<(Duration, Duration)> {
    let mut bench = Bench::new(EngineLimits { num_blocks: 70_000, ..limits(4, 8192) })?;
    let (mut new, mut cached) = (Vec::new(), Vec::new());
    for id in 0..122 {
        bench.engine.add(request(id, len, 1))?;
        new.push(bench.step()?.0);
    }
    for id in 0..122 {
        bench.engine.add(EngineRequest { id: RequestId(1000 + id), ..request(id, len, 1) })?;
        cached.push(bench.step()?.0);
    }
    new.sort_unstable();
    cached.sort_unstable();
    Ok((new[new.len() / 2], cached[cached.len() / 2]))
}
