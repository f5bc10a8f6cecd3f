//! `octavo-bench machine` as a user runs it.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::{Command, Output};

use serde_json::Value;

fn machine(flags: &str) -> Output {
    let flags = flags.split_whitespace();
    Command::new(env!("CARGO_BIN_EXE_octavo-bench")).arg("machine").args(flags).output().unwrap()
}

#[test]
fn every_limit_is_a_rate() {
    let output = machine("--threads 2 --read-mib 1 --read-mib 2 --tries 1 --json");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["threads"], 2);
    let reads = found["read"].as_array().unwrap();
    assert_eq!(reads.iter().map(|read| read["mib"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2]);
    let peaks = found["peak"].as_array().unwrap();
    assert_eq!(peaks.is_empty(), !cfg!(target_arch = "x86_64"));
    for (limit, key) in
        reads.iter().map(|read| (read, "gb_s")).chain(peaks.iter().map(|peak| (peak, "gop_s")))
    {
        // Between what a slow emulator does and what no core can.
        assert!((0.001..1e6).contains(&limit[key].as_f64().unwrap()), "{limit}");
    }
}

#[test]
fn a_senseless_size_is_refused() {
    for (flags, word) in [("--threads 0", "--threads 0"), ("--read-mib 99999999", "--read-mib 99999999")] {
        let output = machine(flags);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains(word));
    }
}
