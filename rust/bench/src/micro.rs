//! `octavo-bench micro`: the core's hot paths, timed shortly. `cargo bench -p octavo-bench` times the same with
//! criterion, which keeps baselines and says whether a change is noise.

use std::time::{Duration, Instant};

use clap::Args;
use octavo_core::{EngineLimits, EngineRequest, Result as CoreResult};
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::output;
use crate::sim::{Loop, decoding, limits, prompted};

/// Time the core's hot paths with short sampling
///
/// Each line is the median over batches, beside the time that the project aims at on one core of a common server.
/// For careful numbers, with baselines: cargo bench -p octavo-bench
#[derive(Args, Clone, Debug)]
pub struct MicroArgs {
    /// Only benches whose name has this in it
    pub filter: Option<String>,
    /// Measure each for about this long, seconds
    #[arg(long, default_value_t = 0.5)]
    pub seconds: f64,
    /// Run each so many times instead, for a profiler that counts instructions
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    pub runs: Option<u64>,
    /// Write one JSON object to this file or, without a name, to standard output (the table then goes to standard
    /// error)
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<String>,
}

/// Tokens of a long prompt.
const PROMPT: u32 = 8192;
/// Long prompts that fill the tree: a million tokens.
const PROMPTS: u64 = 122;
/// Steps that decoding sequences have before they are made anew.
const DECODE_STEPS: u32 = 2048;

/// One hot path.
#[derive(Debug)]
pub struct Bench {
    /// `path/parameters`.
    pub name: &'static str,
    /// What it should cost at most.
    pub budget: Duration,
    /// Sets it up.
    pub start: fn() -> CoreResult<Runner>,
}

/// Runs a hot path so many times; returns the time spent in it alone.
pub type Runner = Box<dyn FnMut(u64) -> CoreResult<Duration>>;

/// All of them.
pub const BENCHES: [Bench; 6] = [
    Bench { name: "decode/256x1024", budget: Duration::from_micros(25), start: || decode(256, 1024) },
    Bench { name: "decode/256x8192", budget: Duration::from_micros(25), start: || decode(256, 8192) },
    Bench { name: "decode/1024x1024", budget: Duration::from_micros(100), start: || decode(1024, 1024) },
    Bench { name: "prefix-match/8192-of-1M", budget: Duration::from_micros(30), start: prefix_match },
    Bench { name: "prefix-insert/8192-of-1M", budget: Duration::from_micros(30), start: prefix_insert },
    Bench { name: "prefix-evict/8192-of-1M", budget: Duration::from_micros(60), start: prefix_evict },
];

/// Plan and commit of a step in which every sequence decodes.
fn decode(running: u32, context: u32) -> CoreResult<Runner> {
    let mut engine = decoding(running, context, DECODE_STEPS)?;
    let mut left = DECODE_STEPS;
    Ok(Box::new(move |times| {
        let mut total = Duration::ZERO;
        for _ in 0..times {
            if left == 0 {
                engine = decoding(running, context, DECODE_STEPS)?;
                left = DECODE_STEPS;
            }
            left -= 1;
            total += engine.step()?;
        }
        Ok(total)
    }))
}

/// An engine for long prompts, with `spare` of them as room beside a million cached tokens.
fn long_prompts(spare: u32) -> CoreResult<Loop> {
    let one = limits(1, PROMPT + 1);
    let num_blocks = (PROMPTS as u32 + spare) * PROMPT / one.block_size + 1;
    Loop::new(EngineLimits { num_blocks, max_num_seqs: 1, ..one })
}

/// Admits one request, ends it, and returns the time of planning it: the search for its prompt in the tree, its
/// blocks and its block table.
fn admit(engine: &mut Loop, request: EngineRequest) -> CoreResult<Duration> {
    engine.engine.add(request)?;
    let start = Instant::now();
    engine.plan()?;
    let planned = start.elapsed();
    engine.answer()?;
    engine.commit()?;
    Ok(planned)
}

fn filled(spare: u32) -> CoreResult<Loop> {
    let mut engine = long_prompts(spare)?;
    for id in 0..PROMPTS {
        admit(&mut engine, prompted(id, PROMPT, 1))?;
    }
    Ok(engine)
}

/// Planning a prompt of which all is cached but the last block.
fn prefix_match() -> CoreResult<Runner> {
    let mut engine = filled(1)?;
    let prompts: Vec<EngineRequest> = (0..PROMPTS).map(|id| prompted(id, PROMPT, 1)).collect();
    let mut next = prompts.len();
    Ok(Box::new(move |times| {
        let mut total = Duration::ZERO;
        for _ in 0..times {
            let prompt = prompts[next % prompts.len()].clone();
            total += admit(&mut engine, EngineRequest { id: octavo_core::RequestId(next as u64), ..prompt })?;
            next += 1;
        }
        Ok(total)
    }))
}

/// Planning a prompt of which nothing is cached, with room for it.
fn prefix_insert() -> CoreResult<Runner> {
    const ROOM: u64 = 64;
    let mut engine = filled(ROOM as u32)?;
    let mut next = PROMPTS;
    Ok(Box::new(move |times| {
        let mut total = Duration::ZERO;
        for _ in 0..times {
            if next == PROMPTS + ROOM {
                engine = filled(ROOM as u32)?;
                next = PROMPTS;
            }
            total += admit(&mut engine, prompted(next, PROMPT, 1))?;
            next += 1;
        }
        Ok(total)
    }))
}

/// The same where every block must be taken from the cache first: what it costs beyond `prefix-insert` is eviction.
fn prefix_evict() -> CoreResult<Runner> {
    let mut engine = filled(0)?;
    let mut next = PROMPTS;
    Ok(Box::new(move |times| {
        let mut total = Duration::ZERO;
        for _ in 0..times {
            total += admit(&mut engine, prompted(next, PROMPT, 1))?;
            next += 1;
        }
        Ok(total)
    }))
}

/// Runs the command and writes its report.
///
/// # Errors
/// A bad command line, or a fault of the core.
pub fn run(args: &MicroArgs) -> Result<()> {
    let limit = Duration::try_from_secs_f64(args.seconds)
        .map_err(|_| Error::invalid(format!("--seconds {}: not a time", args.seconds)))?;
    let wanted = |bench: &&Bench| args.filter.as_ref().is_none_or(|part| bench.name.contains(part.as_str()));
    let mut table = output::row("microseconds", format_args!("{:>12}{:>12}", "median", "aim"));
    let mut json = Map::new();
    for bench in BENCHES.iter().filter(wanted) {
        let sampled = args.runs.map_or_else(|| sample(bench, limit), |runs| repeat(bench, runs));
        let median = sampled.map_err(|error| Error::violation(error.to_string()))?;
        let (found, aim) = (median.as_secs_f64() * 1e6, bench.budget.as_secs_f64() * 1e6);
        table += &output::row(bench.name, format_args!("{found:>12.2}{aim:>12.2}"));
        json.insert(bench.name.into(), output::number(median.as_nanos() as f64));
    }
    if json.is_empty() {
        let names: Vec<&str> = BENCHES.iter().map(|bench| bench.name).collect();
        return Err(Error::invalid(format!("no bench has that name; there are {}", names.join(", "))));
    }
    let json = Map::from_iter([("median_ns".to_owned(), Value::Object(json))]);
    output::write(&table, &json, args.json.as_deref())
}

/// The mean of so many runs.
fn repeat(bench: &Bench, runs: u64) -> CoreResult<Duration> {
    let total = (bench.start)()?(runs)?;
    Ok(total.div_f64(runs.max(1) as f64))
}

/// The median of single runs, taken for about so long.
fn sample(bench: &Bench, limit: Duration) -> CoreResult<Duration> {
    let mut runner = (bench.start)()?;
    let _warm_up = runner(8)?;
    let start = Instant::now();
    let mut times = Vec::new();
    while start.elapsed() < limit || times.len() < 8 {
        times.push(runner(1)?);
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}
