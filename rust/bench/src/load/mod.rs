//! `octavo-bench load`: drives any OpenAI-compatible server.

mod args;
mod chunk;
mod client;
mod dataset;
mod dialogue;
mod drive;
mod feed;
mod progress;
mod ramp;
mod record;
mod report;
mod slo;
mod sse;
mod target;
mod totals;
mod words;
mod workload;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

pub use args::{ArrivalArgs, LoadArgs, PromptFormat, RampArgs, RampOver, ServerArgs, WorkloadArgs};

use self::drive::Level;
use self::ramp::Search;
use self::target::Target;
use self::totals::Totals;
use self::workload::Workload;
use crate::arrivals::Arrivals;
use crate::error::{Error, Result};
use crate::output;

/// Fewest conversations in a level of a ramp.
const LEAST_REQUESTS: u64 = 16;

/// Runs the command and writes its report.
///
/// # Errors
/// A bad command line, a server that cannot be measured, or failed requests.
pub fn run(args: &LoadArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::server(format!("the runtime cannot be started: {error}")))?;
    let report = runtime.block_on(measure(args))?;
    output::write(&report.table, &report.json, args.json.as_deref())?;
    match report.json.get("failed").and_then(Value::as_u64) {
        Some(failed) if failed > 0 => Err(Error::server(format!("{failed} requests failed"))),
        _ => Ok(()),
    }
}

/// What a run found.
#[derive(Clone, Debug)]
pub struct Report {
    /// For people.
    pub table: String,
    /// For programs.
    pub json: Map<String, Value>,
}

/// Runs the command.
///
/// # Errors
/// A bad command line, or a server that cannot be measured. Failed requests are in the report.
pub async fn measure(args: &LoadArgs) -> Result<Report> {
    let think_time = Duration::try_from_secs_f64(args.workload.think_time)
        .map_err(|_| Error::invalid(format!("--think-time {}: not a time", args.workload.think_time)))?;
    let arrivals =
        Arrivals::new(args.arrivals.request_rate, args.arrivals.burstiness, args.arrivals.max_concurrency)?;
    let target = Arc::new(Target::find(&args.server).await?);
    let workload = Workload::new(&args.workload, target.takes_ids(args).await?, args.seed)?;
    workload.check(target.template.api)?;
    let mut run = Run { args, target, workload, think_time, next: 0 };
    run.warm_up().await?;
    match args.ramp.ramp {
        None => {
            let totals = run.level(arrivals, u64::from(args.workload.num_prompts)).await?;
            let with_goodput = !args.goodput.is_empty();
            let mut json = run.describe();
            json.append(&mut totals.json(&arrivals, with_goodput));
            Ok(Report { table: totals.table(with_goodput), json })
        }
        Some(over) => run.ramp(over).await,
    }
}

/// A command under way. Every level takes conversations that none has had, so
/// that no prompt is in the server's cache by accident.
struct Run<'a> {
    args: &'a LoadArgs,
    target: Arc<Target>,
    workload: Workload,
    think_time: Duration,
    next: u64,
}

impl Run<'_> {
    async fn level(&mut self, arrivals: Arrivals, count: u64) -> Result<Totals> {
        let level = Level {
            target: &self.target,
            workload: &self.workload,
            arrivals,
            conversations: (self.next, count),
            think_time: self.think_time,
            slos: &self.args.goodput,
            seed: self.args.seed,
        };
        self.next += count;
        level.run().await
    }

    async fn warm_up(&mut self) -> Result<()> {
        let totals =
            self.level(Arrivals::Closed { concurrency: 1 }, u64::from(self.args.num_warmups)).await?;
        match totals.error_examples.first() {
            Some(example) => Err(Error::server(format!("a warm-up request failed: {example}"))),
            None => Ok(()),
        }
    }

    async fn ramp(&mut self, over: RampOver) -> Result<Report> {
        let ramp = &self.args.ramp;
        let bad =
            |flag: &str, value: f64| Err(Error::invalid(format!("{flag} is {value}; it must be above 0")));
        for (flag, value) in [
            ("--ramp-start", ramp.ramp_start),
            ("--ramp-max", ramp.ramp_max),
            ("--ramp-tolerance", ramp.ramp_tolerance),
        ] {
            if value.is_nan() || value <= 0.0 {
                return bad(flag, value);
            }
        }
        let whole = over == RampOver::Concurrency;
        let mut search = Search::new(ramp.ramp_start, ramp.ramp_max, ramp.ramp_tolerance, whole);
        let mut levels = Vec::new();
        let mut table = format!(
            "{:>12}{:>8}{:>12}{:>14}{:>12}{:>12}{:>12}\n",
            "level", "pass", "good, %", "out tokens/s", "p99 ttft", "p99 tpot", "p99 e2el"
        );
        let mut best = None;
        while let Some(level) = search.level() {
            let (arrivals, count) = self.arrivals_at(over, level)?;
            let totals = self.level(arrivals, count).await?;
            let pass = totals.good_share() >= ramp.ramp_pass_share;
            search.verdict(pass);
            table += &level_row(level, pass, &totals);
            let mut json = totals.json(&arrivals, true);
            json.insert("pass".into(), pass.into());
            if pass {
                best = Some(json.clone());
            }
            levels.push(Value::Object(json));
        }
        let knee = search.knee().map_or(Value::Null, output::number);
        table += &output::row("\nknee", &knee);
        let mut json = self.describe();
        json.append(&mut best.unwrap_or_default());
        json.insert("knee".into(), knee);
        json.insert("levels".into(), levels.into());
        Ok(Report { table, json })
    }

    /// The arrivals of a ramp's level, and how many conversations it takes.
    fn arrivals_at(&self, over: RampOver, level: f64) -> Result<(Arrivals, u64)> {
        let flags = &self.args.arrivals;
        let (arrivals, count) = match over {
            RampOver::Rate => {
                let count = (level * self.args.ramp.ramp_level_seconds).ceil() as u64;
                (Arrivals::new(level, flags.burstiness, flags.max_concurrency)?, count)
            }
            RampOver::Concurrency => (Arrivals::Closed { concurrency: level as u32 }, 4 * level as u64),
        };
        Ok((arrivals, count.max(LEAST_REQUESTS)))
    }

    /// What was asked of whom.
    fn describe(&self) -> Map<String, Value> {
        let workload = &self.args.workload;
        let mut json = Map::new();
        let mut put = |key: &str, value: Value| json.insert(key.into(), value);
        put("endpoint", self.target.uri.to_string().into());
        put("model_id", self.target.model.clone().into());
        put("num_prompts", workload.num_prompts.into());
        match &workload.dataset_path {
            Some(path) => put("dataset_path", path.display().to_string().into()),
            None => put("input_len", workload.input_len.into()),
        };
        put("output_len", workload.output_len.into());
        put("prefix_len", workload.prefix_len.into());
        put("num_prefixes", workload.num_prefixes.into());
        put("turns", workload.turns.into());
        put("seed", self.args.seed.into());
        json
    }
}

fn level_row(level: f64, pass: bool, totals: &Totals) -> String {
    let p99 = |distribution: &crate::distribution::Distribution| {
        distribution.summary_ms().map_or("-".into(), |summary| format!("{:.1}", summary.p99))
    };
    format!(
        "{level:>12.2}{:>8}{:>12.1}{:>14.1}{:>12}{:>12}{:>12}\n",
        if pass { "yes" } else { "no" },
        100.0 * totals.good_share(),
        totals.output_tokens as f64 / totals.duration.as_secs_f64().max(1e-9),
        p99(&totals.ttft),
        p99(&totals.tpot),
        p99(&totals.e2el),
    )
}
