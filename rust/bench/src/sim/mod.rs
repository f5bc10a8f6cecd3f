//! `octavo-bench sim`: the real core in virtual time.

mod args;
mod bound;
mod device;
mod ledger;
mod report;
mod request;
mod steady;
mod trace;
mod world;

pub use args::{Check, DeviceArgs, EngineArgs, PolicyName, SimArgs, SteadyArgs, TraceArgs};
pub use device::Device;
pub use steady::{Loop, decoding, limits, prompted};
pub use world::{Outcome, oracle};

use self::bound::Bound;
use self::world::World;
use crate::error::{Error, Result};
use crate::output;

/// Runs the command and writes its report.
///
/// # Errors
/// A bad command line or trace, or a broken law.
pub fn run(args: &SimArgs) -> Result<()> {
    let (table, json) = if let Some(running) = args.steady.running {
        if running == 0 || args.steady.context == 0 || args.steady.steps == 0 {
            return Err(Error::invalid("--running, --context and --steps must be at least 1"));
        }
        let steady = steady::measure(running, args.steady.context, args.steady.steps)
            .map_err(|error| Error::invalid(error.to_string()))?;
        (steady.table(), steady.json())
    } else {
        let outcome = simulate(args)?;
        (outcome.table(), outcome.json())
    };
    output::write(&table, &json, args.json.as_deref())
}

/// Runs a trace.
///
/// # Errors
/// A bad command line or trace, or a broken law.
pub fn simulate(args: &SimArgs) -> Result<Outcome> {
    let limits = args.engine.limits();
    simulate_on(args, Box::new(oracle(&limits, args.device.deep_reads)))
}

/// Runs a trace on a device.
///
/// # Errors
/// A bad command line or trace, or a broken law.
pub fn simulate_on(args: &SimArgs, device: Box<dyn Device>) -> Result<Outcome> {
    let limits = args.engine.limits();
    limits.check().map_err(|error| Error::invalid(error.to_string()))?;
    let bound = Bound::new(&limits);
    let arrivals = || trace::arrivals(&args.trace, limits.vocab_size);
    if let Some(path) = &args.trace.record {
        trace::record(path, arrivals()?)?;
    }
    let arrivals = arrivals()?;
    World::new(limits, bound, &args.device, args.check, arrivals, device)?.run()
}
