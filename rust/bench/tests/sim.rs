//! `octavo-bench sim` on small traces, with sound devices and with broken ones.
#![allow(clippy::unwrap_used, reason = "a test")]

use clap::Parser;
use octavo_bench::sim::{Device, SimArgs, oracle, simulate, simulate_on};
use octavo_bench::{Error, Result};
use octavo_core::fake::FakeWorker;
use octavo_core::frame::{Frame, FrameLayout, FrameMut, StepResultMut, header};
use serde_json::{Map, Value};

#[derive(Parser)]
#[command(args_override_self = true)]
struct Cli {
    #[command(flatten)]
    sim: SimArgs,
}

fn args(flags: &str) -> SimArgs {
    Cli::try_parse_from(format!("sim {flags}").split_whitespace()).unwrap().sim
}

fn sim(flags: &str) -> Result<Map<String, Value>> {
    let mut json = simulate(&args(flags))?.json();
    json.retain(|key, _| !key.contains("core_"));
    Ok(json)
}

/// More than the blocks hold at once: some requests are preempted.
const PRESSED: &str = "--num-requests 120 --input-len 60 --output-len 40 --range-ratio 0.5 --prefix-len 32 \
    --num-prefixes 3 --request-rate 100 --num-blocks 60 --max-num-seqs 16 --max-num-batched-tokens 128";

#[test]
fn the_same_seed_gives_the_same_report() {
    let flags = format!("{PRESSED} --abort-share 0.3 --abort-within 2");
    let first = sim(&flags).unwrap();
    assert_eq!(first, sim(&flags).unwrap());
    assert_ne!(first, sim(&format!("{flags} --seed 1")).unwrap());
    assert!(first["preemptions"].as_u64() > Some(0));
    assert!(first["aborted"].as_u64() > Some(0));
    assert_eq!(first["completed"].as_u64().unwrap() + first["aborted"].as_u64().unwrap(), 120);
}

#[test]
fn outputs_do_not_depend_on_how_they_are_scheduled() {
    let digest = |flags: &str| {
        let report = sim(&format!("{PRESSED} --deep-reads {flags}")).unwrap();
        assert_eq!(report["completed"], 120, "{flags}");
        report["digest"].clone()
    };
    let unpressed = digest("--num-blocks 4096 --pipeline-depth 1");
    for flags in [
        "",
        "--pipeline-depth 1",
        "--enable-prefix-caching false",
        "--long-prefill-token-threshold 20",
        "--scheduling-policy priority --num-priorities 4",
        "--kill-every 37",
        "--scheduling-policy lpm",
        "--scheduling-policy fair --num-tenants 3",
        "--watermark 0.2",
        "--host-blocks 40",
        "--host-blocks 40 --kill-every 37",
    ] {
        assert_eq!(digest(flags), unpressed, "{flags}");
    }
}

#[test]
fn every_kind_of_pressure_keeps_the_laws_and_bounds_of_every_policy() {
    for policy in ["fcfs", "priority", "lpm", "fair"] {
        for seed in 0..3 {
            let flags = format!(
                "{PRESSED} --seed {seed} --abort-share 0.5 --abort-within 1 --kill-every 50 --burstiness 0.2 \
                 --scheduling-policy {policy} --num-priorities 3 --num-tenants 3 --host-blocks 30"
            );
            let report = sim(&flags).unwrap();
            assert!(report["deaths"].as_u64() > Some(0), "{policy}");
            assert!((0.0..1.0).contains(&report["wait_bound_used"].as_f64().unwrap()), "{policy}");
        }
    }
}

#[test]
fn the_host_gives_back_what_the_device_had_no_room_for() {
    let flags = "--num-requests 200 --input-len 8 --output-len 4 --prefix-len 64 --num-prefixes 20 \
                 --request-rate 20 --num-blocks 40 --max-num-seqs 4 --deep-reads";
    let report = sim(&format!("{flags} --host-blocks 200")).unwrap();
    assert_eq!(report["digest"], sim(flags).unwrap()["digest"]);
    assert!(report["host_hit_rate"].as_f64() > Some(0.2), "{report:?}");
}

#[test]
fn a_full_queue_refuses() {
    let report = sim("--num-requests 20 --input-len 8 --output-len 4 --max-num-queued-reqs 5").unwrap();
    assert_eq!(report["refused"], 15);
    assert_eq!(report["completed"], 5);
}

#[test]
fn virtual_times_are_those_of_the_model() {
    // A prompt of 100 tokens, then three single tokens: 100, 101, 102, 103 tokens of KV read.
    let report =
        sim("--num-requests 1 --input-len 100 --output-len 4 --step-us 1000 --token-us 10 --kv-token-us 1")
            .unwrap();
    assert_eq!(report["mean_ttft_ms"], 2.1);
    assert_eq!(report["max_itl_ms"].as_f64().map(|ms| (ms * 1e2).round()), Some(111.0));
    assert_eq!(report["duration"], 0.005);
    assert_eq!(report["mean_e2el_ms"], 5.436);
}

#[test]
fn a_recorded_trace_is_replayed() {
    let path = std::env::temp_dir().join(format!("octavo-bench-trace-{}.jsonl", std::process::id()));
    let lines = "{\"arrival_s\": 3, \"prompt\": [1, 2, 3], \"output_len\": 2}\n\
                 {\"arrival_s\": 1, \"input_len\": 5, \"output_len\": 1000, \"abort_after_s\": 0.1}\n";
    std::fs::write(&path, lines).unwrap();
    let report = sim(&format!("--trace {}", path.display())).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!((&report["completed"], &report["aborted"]), (&1.into(), &1.into()));
    assert!(report["duration"].as_f64() > Some(3.0));
    assert!(sim("--trace /nonexistent.jsonl").unwrap_err().to_string().contains("/nonexistent.jsonl"));
}

#[test]
fn flags_out_of_range_are_named() {
    for (flags, name) in [
        ("--input-len 0", "--input-len"),
        ("--abort-share 2", "--abort-share"),
        ("--step-us -1", "--step-us"),
        ("--pipeline-depth 3", "pipeline_depth"),
        ("--num-requests 1 --input-len 70000", "max_model_len"),
    ] {
        let flags = flags.replace("--step-us -1", "--step-us=-1");
        match sim(&flags) {
            Err(Error::Invalid(message)) => {
                assert!(message.contains(name) || message.contains("context"), "{flags}: {message}");
            }
            other => panic!("{flags}: {other:?}"),
        }
    }
}

/// A device that does something wrong once, at a step.
struct Broken {
    worker: FakeWorker,
    layout: FrameLayout,
    fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// Samples another token than it should.
    WrongToken,
    /// Writes a sequence's KV into another's block.
    WrongBlock,
    /// Answers a step that was not asked.
    WrongStep,
    /// Answers with the last step's result.
    NoAnswer,
    /// Computes no finite logits.
    NotFinite,
}

const FAULTY_STEP: i32 = 12;

impl Device for Broken {
    fn die(&mut self) {
        self.worker.die();
    }

    fn run(&mut self, frame: &[u8], result: &mut [u8]) -> octavo_core::Result<()> {
        let step = Frame::new(&self.layout, frame)?.header[header::STEP];
        if step != FAULTY_STEP {
            return self.worker.run(frame, result);
        }
        match self.fault {
            Fault::NoAnswer => return Ok(()),
            Fault::WrongBlock => {
                let mut copy = octavo_core::frame::Buffer::new(self.layout.frame_bytes);
                copy.bytes_mut().copy_from_slice(frame);
                let columns = FrameMut::new(&self.layout, copy.bytes_mut())?;
                columns.delta_block[0] ^= 1;
                self.worker.run(copy.bytes(), result)?;
            }
            _ => self.worker.run(frame, result)?,
        }
        let columns = StepResultMut::new(&self.layout, result)?;
        match self.fault {
            Fault::WrongToken => columns.token[0] ^= 1,
            Fault::WrongStep => columns.header[header::STEP] += 1,
            Fault::NotFinite => columns.status[0] = 1,
            Fault::WrongBlock | Fault::NoAnswer => {}
        }
        Ok(())
    }
}

#[test]
fn broken_devices_are_detected() {
    let args = args(&format!("{PRESSED} --deep-reads --request-rate 1000"));
    let limits = args.engine.limits();
    for (fault, words) in [
        (Fault::WrongToken, "is not what it gets alone"),
        (Fault::WrongBlock, ""),
        (Fault::WrongStep, "step 13"),
        (Fault::NoAnswer, "the result is of step 11"),
        (Fault::NotFinite, "ended as Error"),
    ] {
        let layout = FrameLayout::new(&limits);
        match simulate_on(&args, Box::new(Broken { worker: oracle(&limits, true), layout, fault })) {
            Err(Error::Violation(message)) => assert!(message.contains(words), "{fault:?}: {message}"),
            other => panic!("{fault:?} was not detected: {other:?}"),
        }
    }
}

/// 32 sequences decode for ten seconds; with `long`, a prompt of 16k tokens arrives meanwhile.
fn decoding(long: bool, flags: &str) -> Map<String, Value> {
    let file = format!("octavo-bench-itl-{}-{long}-{}.jsonl", std::process::id(), flags.len());
    let path = std::env::temp_dir().join(file);
    let mut lines = "{\"arrival_s\": 0, \"input_len\": 64, \"output_len\": 1000}\n".repeat(32);
    if long {
        lines += "{\"arrival_s\": 1, \"input_len\": 16384, \"output_len\": 1}\n";
    }
    std::fs::write(&path, lines).unwrap();
    let report = sim(&format!("--trace {} {flags}", path.display())).unwrap();
    std::fs::remove_file(&path).unwrap();
    report
}

#[test]
fn a_long_prompt_delays_other_tokens_by_no_more_than_a_step() {
    let ms = |report: &Map<String, Value>, key: &str| report[key].as_f64().unwrap();
    for budget in [2048, 256] {
        let flags = format!("--max-num-batched-tokens {budget} --check end");
        let (without, with) = (decoding(false, &flags), decoding(true, &flags));
        // A step of the whole budget: 6 ms, 30 us a token, 0.04 us a token of KV read.
        let step_ms = 6.0 + 0.030 * f64::from(budget) + 0.000_04 * (16_384.0 + 32.0 * 1_064.0);
        let worst = ms(&with, "max_itl_ms");
        assert!(
            worst <= step_ms,
            "every sequence gets a token in every step: {worst} ms, a step {step_ms} ms"
        );
        let (quiet, loud) = (ms(&without, "p99_itl_ms"), ms(&with, "p99_itl_ms"));
        // A prompt in 9 chunks is in less than a hundredth of the steps; one in 74 chunks is not, but they are short.
        let most = if budget == 2048 { 1.01 * quiet } else { 2.0 * quiet };
        assert!(loud <= most, "budget {budget}: {quiet} ms without, {loud} ms with the long prompt");
    }
}

#[test]
fn a_trace_is_recorded_with_its_token_ids() {
    let path = std::env::temp_dir().join(format!("octavo-bench-record-{}.jsonl", std::process::id()));
    let flags = format!("{PRESSED} --vocab-size 80 --num-stop-ids 2 --abort-share 0.3 --abort-within 2");
    let recorded = sim(&format!("{flags} --record {}", path.display())).unwrap();
    let engine = "--num-blocks 60 --max-num-seqs 16 --max-num-batched-tokens 128 --vocab-size 80";
    let replayed = sim(&format!("--trace {} {engine} --seed 5", path.display())).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(recorded, replayed);
    assert!(recorded["total_output_tokens"].as_u64() < Some(120 * 40), "stop ids end requests early");
    let error = sim("--num-requests 1 --record /nonexistent/trace.jsonl").unwrap_err().to_string();
    assert!(error.contains("--record /nonexistent/trace.jsonl"), "{error}");
}
