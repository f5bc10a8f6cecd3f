//! Recorded traces give every request the same at either depth of the pipeline, whatever the policy and the pressure.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::fs;

use clap::Parser;
use octavo_bench::sim::{Outcome, SimArgs, simulate};
use octavo_core::FinishReason;
use serde_json::Value;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    sim: SimArgs,
}

/// Few blocks, so that some requests are preempted.
const PRESSED: &str = "--vocab-size 100 --deep-reads --num-blocks 64 --max-num-seqs 16 --max-num-batched-tokens 128 \
    --check end";

fn path(trace: &str) -> String {
    format!("{}/tests/traces/{trace}.jsonl", env!("CARGO_MANIFEST_DIR"))
}

/// A run of a trace, which also compares all outputs with what each request gets alone.
fn run(trace: &str, flags: &str, depth: u32) -> Outcome {
    let flags = format!("sim --trace {} {PRESSED} {flags} --pipeline-depth {depth}", path(trace));
    simulate(&Cli::parse_from(flags.split_whitespace()).sim).unwrap()
}

/// The requests of a trace that nobody aborts. How far the others get is a matter of time, and so of depth.
fn never_aborted(trace: &str) -> BTreeSet<u64> {
    let text = fs::read_to_string(path(trace)).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    (0..).zip(lines).filter(|(_, line)| line.get("abort_after_s").is_none()).map(|(id, _)| id).collect()
}

fn assert_same_at_both_depths(trace: &str, flags: &str) {
    let both = [1, 2].map(|depth| run(trace, flags, depth));
    let what = format!("{trace} {flags}");
    for outcome in &both {
        assert!(outcome.stats.preemptions > 0, "{what}");
        assert!(outcome.totals.aborted > 0, "{what}");
        assert!(outcome.stats.prefix_hit_tokens > 0, "{what}");
        assert_eq!(flags.contains("--kill"), outcome.deaths > 0, "{what}");
    }
    let [one, two] = both.map(|outcome| outcome.totals.outputs);
    for id in never_aborted(trace) {
        assert_eq!((one.contains_key(&id), two.contains_key(&id)), (true, true), "{what}: request {id} ends");
    }
    for (id, output) in &one {
        assert!(two.get(id).is_none_or(|other| other == output), "{what}: request {id} gets the same");
    }
    assert!(one.values().any(|(reason, _)| *reason == FinishReason::Length), "{what}");
    assert!(one.values().any(|(reason, _)| matches!(reason, FinishReason::StopToken(_))), "{what}");
}

fn assert_same_with_every_policy(trace: &str) {
    for policy in ["fcfs", "priority", "lpm", "fair"] {
        for tiers in ["", "--host-blocks 40", "--host-blocks 40 --kill-every 61"] {
            assert_same_at_both_depths(trace, &format!("--scheduling-policy {policy} {tiers}"));
        }
    }
}

#[test]
fn bursts_of_many_tenants_get_the_same_at_both_depths() {
    assert_same_with_every_policy("bursts");
}

#[test]
fn long_prompts_in_chunks_get_the_same_at_both_depths() {
    assert_same_with_every_policy("long");
}

#[test]
fn prefixes_that_come_back_get_the_same_at_both_depths() {
    assert_same_with_every_policy("returns");
    for depth in [1, 2] {
        let outcome = run("returns", "--host-blocks 40", depth);
        assert!(outcome.stats.host_hit_tokens > 0, "the host gives prefixes back");
    }
}
