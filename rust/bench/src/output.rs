//! Where reports go: a table for people, one JSON object for programs.

use std::io::Write;

use serde_json::{Map, Value};

use crate::distribution::Summary;
use crate::error::{Error, Result};

/// Writes `table` and, if asked, `json` on one line. With `-` the object has
/// standard output for itself and the table goes to standard error.
///
/// # Errors
/// A file or a stream that cannot be written.
pub fn write(table: &str, json: &Map<String, Value>, destination: Option<&str>) -> Result<()> {
    let line = format!("{}\n", Value::Object(json.clone()));
    match destination {
        None => to_stdout(table),
        Some("-") => {
            eprint!("{table}");
            to_stdout(&line)
        }
        Some(path) => {
            std::fs::write(path, line)
                .map_err(|error| Error::invalid(format!("--json {path} cannot be written: {error}")))?;
            to_stdout(table)
        }
    }
}

fn to_stdout(text: &str) -> Result<()> {
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_err(|error| Error::invalid(format!("standard output cannot be written: {error}")))
}

/// A number as JSON with three decimals, or null.
pub fn number(value: f64) -> Value {
    serde_json::Number::from_f64((value * 1e3).round() / 1e3).map_or(Value::Null, Value::Number)
}

/// Puts `mean_NAME`, `median_NAME`, `p90_NAME`, `p99_NAME` and `max_NAME`.
pub fn put_summary(json: &mut Map<String, Value>, name: &str, summary: Option<Summary>) {
    let Some(summary) = summary else { return };
    for (statistic, value) in [
        ("mean", summary.mean),
        ("median", summary.p50),
        ("p90", summary.p90),
        ("p99", summary.p99),
        ("max", summary.max),
    ] {
        json.insert(format!("{statistic}_{name}"), number(value));
    }
}

/// The head of the table that [`summary_row`] fills.
pub fn summary_head(unit: &str) -> String {
    format!("{:<26}{:>11}{:>11}{:>11}{:>11}{:>11}\n", unit, "mean", "p50", "p90", "p99", "max")
}

/// One distribution as a line of a table.
pub fn summary_row(name: &str, summary: Option<Summary>) -> String {
    let Some(s) = summary else { return String::new() };
    format!("{name:<26}{:>11.2}{:>11.2}{:>11.2}{:>11.2}{:>11.2}\n", s.mean, s.p50, s.p90, s.p99, s.max)
}

/// A name and a value as a line of a table.
pub fn row(name: &str, value: impl std::fmt::Display) -> String {
    format!("{name:<36}{value}\n")
}
