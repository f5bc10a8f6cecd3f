//! The command line of `octavo-bench`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use octavo_bench::{load, machine, micro, sim};

/// Measures servers of language models and Octavo's own core.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, args_override_self = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Load(Box<load::LoadArgs>),
    Sim(Box<sim::SimArgs>),
    Micro(micro::MicroArgs),
    Machine(machine::MachineArgs),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Load(args) => load::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Micro(args) => micro::run(&args),
        Command::Machine(args) => machine::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("octavo-bench: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
