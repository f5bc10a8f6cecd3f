//! `octavo-bench machine`: what this machine can do at most, so that a measurement can be given as a share of it.

mod peak;
mod read;

use clap::Args;
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::output;

/// Measure how fast this machine reads memory and multiplies
///
/// Reading: every thread reads its part of one buffer again and again, as a model's weights are read for each token;
/// a buffer that fits in a cache is read faster. Multiplying: each kind of number by each instruction set that the
/// machine has, in registers; a multiplication and an addition count as two operations. Figures are the best of
/// several tries: other programs only make them smaller.
#[derive(Args, Clone, Debug)]
pub struct MachineArgs {
    /// Threads [default: one a core]
    #[arg(long)]
    pub threads: Option<usize>,
    /// Size of the buffer that is read, MiB; may be repeated
    #[arg(long, value_name = "MIB", default_values_t = [128, 512])]
    pub read_mib: Vec<usize>,
    /// Tries of each
    #[arg(long, default_value_t = 10)]
    pub tries: usize,
    /// Write one JSON object to this file or, without a name, to standard output (the table then goes to standard
    /// error)
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<String>,
}

/// Most memory that is read, MiB.
const MOST_MIB: usize = 1 << 16;
/// Most threads.
const MOST_THREADS: usize = 1024;

/// Runs the command and writes its report.
///
/// # Errors
/// A bad command line.
pub fn run(args: &MachineArgs) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = within("--threads", args.threads.unwrap_or(cores), MOST_THREADS)?;
    let tries = within("--tries", args.tries, 1000)?;
    let mut table = output::row("threads", threads);
    let mut reads = Vec::new();
    for &mib in &args.read_mib {
        let rate = read::best(threads, within("--read-mib", mib, MOST_MIB)?, tries) / 1e9;
        table += &output::row(&format!("read {mib} MiB, GB/s"), format_args!("{rate:.1}"));
        reads.push(json!({"mib": mib, "gb_s": output::number(rate)}));
    }
    let mut peaks = Vec::new();
    for kernel in peak::KERNELS.iter().filter(|kernel| (kernel.available)()) {
        let rate = peak::best(kernel, threads, tries) / 1e9;
        let name = format!("{} by {}, Gop/s", kernel.number, kernel.instruction);
        table += &output::row(&name, format_args!("{rate:.0}"));
        peaks.push(json!({
            "number": kernel.number, "instruction": kernel.instruction, "gop_s": output::number(rate),
        }));
    }
    if peaks.is_empty() {
        table +=
            "no peak: no instruction set of this machine is known here (x86-64 with AVX2 and later is)\n";
    }
    let json = Map::from_iter([
        ("threads".to_owned(), Value::from(threads)),
        ("read".to_owned(), Value::from(reads)),
        ("peak".to_owned(), Value::from(peaks)),
    ]);
    output::write(&table, &json, args.json.as_deref())
}

fn within(name: &str, value: usize, most: usize) -> Result<usize> {
    if (1..=most).contains(&value) {
        return Ok(value);
    }
    Err(Error::invalid(format!("{name} {value}: must be 1 to {most}")))
}
