//! The log lines of the Rust side.

use pyo3::prelude::*;
use tracing_subscriber::filter::LevelFilter;

use crate::enter::Failure;

/// Writes log lines of `level` (debug, info, warning or error) and above to standard error. Later calls
/// change nothing.
#[pyfunction]
pub fn start_logging(level: &str) -> PyResult<()> {
    let level = match level {
        "debug" => LevelFilter::DEBUG,
        "info" => LevelFilter::INFO,
        "warning" => LevelFilter::WARN,
        "error" => LevelFilter::ERROR,
        other => return Err(Failure::Invalid(format!("unknown log level {other}")).into()),
    };
    let subscriber = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .with_max_level(level);
    // Fails where a subscriber is there already, which then stays.
    let _ = subscriber.try_init();
    Ok(())
}
