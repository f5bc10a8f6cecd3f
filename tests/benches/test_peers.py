"""`benches.peers`: whatever is started is stopped, and the page claims no more than was measured."""

import sys
import time
from pathlib import Path

import pytest
from benches.peers.measure import Log
from benches.peers.process import Server, ServerError, stat_fields, tree
from benches.peers.report import Report
from benches.peers.roofline import Limits, Model, scenario_s, step_s
from benches.peers.scenarios import SCENARIOS

# A server whose worker has a session of its own.
FAMILY = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True).wait()
"""
MACHINE = {
    "scenario": "machine",
    "date": "2026-01-01",
    "processor": "abacus",
    "threads": 2,
    "memory_gib": 1,
    "command": "make bench-peers",
    "versions": {"Octavo": "0"},
    "read": [{"mib": 1, "gb_s": 10.0}, {"mib": 500, "gb_s": 1.0}],
    "peak": [
        {"number": "f32", "instruction": "beads", "gop_s": 100.0},
        {"number": "int8", "instruction": "pebbles", "gop_s": 400.0},
    ],
}
MODEL = Model(
    weight_bytes=500_000_000,
    matrix_values=100_000_000,
    head_values=25_000_000,
    layers=1,
    heads=1,
    kv_heads=1,
    head_dim=1,
    kv_value_bytes=4,
)


def until(state):
    end = time.monotonic() + 20
    while not (found := state()):
        assert time.monotonic() < end
    return found


def running(members):
    """The processes, once the second one runs its own program."""
    command = Path(f"/proc/{members[1][0]}/cmdline").read_bytes() if len(members) == 2 else b""
    return members if command.endswith(b"while True: pass\0") else None


def states(members):
    return {stat_fields(pid)[0] for pid, _ in members if stat_fields(pid)}


def test_a_server_is_paused_and_stopped_with_all_its_processes(tmp_path):
    server = Server([sys.executable, "-c", FAMILY], {}, tmp_path / "log")
    try:
        members = until(lambda: running(tree(server.process.pid)))
        server.pause()
        until(lambda: states(members) == {"T"})
        server.resume()
        until(lambda: "T" not in states(members))
        until(lambda: server.cpu_s() > 0)
        server.pause()
    finally:
        server.stop()
    until(lambda: not states(members) - {"Z"})


def test_a_server_that_ends_shows_its_last_words(tmp_path):
    server = Server([sys.executable, "-c", "raise SystemExit('no such model')"], {}, tmp_path / "log")
    with pytest.raises(ServerError, match=r"(?s)no such model.*ended with 1"):
        server.wait_ready(30)
    server.stop()


def run(engine, repeat=0, others=0.0, **more):
    return {
        "round": 0,
        "repeat": repeat,
        "format": "f32",
        "engine": engine,
        "setting": "s",
        "scenario": "c8",
        "other_cores": others,
        "pss_mib": 1.0,
        **more,
    }


def rates(engine, *found):
    return [
        run(engine, repeat, output_throughput=rate, duration=1024 / rate) for repeat, rate in enumerate(found)
    ]


def test_the_ratio_is_to_the_better_peer_run_by_run():
    records = [
        MACHINE,
        *rates("octavo", 90, 110, 100),
        *rates("llama.cpp", 45, 50, 40),
        *rates("vllm", 9, 9, 9),
    ]
    page = Report(records, {"f32": MODEL}).markdown()
    assert (
        "| 100.0 [90.0 - 110.0] | 45.0 [40.0 - 50.0] | 9.0 [9.0 - 9.0] | **2.22** [2.00 - 2.50] | >= 2.5 |"
        in page
    )
    assert "prove nothing" not in page


def test_a_run_that_was_cut_is_a_bound():
    cut = run("vllm", error="not finished", limit_s=64.0)
    page = Report([MACHINE, *rates("octavo", 32), cut], {"f32": MODEL}).markdown()
    assert "| 32.0 | - | <16.0 | **>2.00** |" in page
    both = Report([MACHINE, {**cut, "engine": "octavo"}, cut], {"f32": MODEL}).markdown()
    assert "| <16.0 | - | <16.0 | ? |" in both


def test_a_disturbed_run_proves_nothing():
    noisy = run("vllm", others=0.5, output_throughput=1.0, duration=1.0)
    page = Report([MACHINE, noisy], {"f32": MODEL}).markdown()
    assert "**The machine was not quiet** in 1 of 1 runs" in page
    assert "| ~ 1.0 |" in page


def test_the_floor_of_one_stream_is_reading_and_of_a_prompt_arithmetic():
    limits = Limits.of(MACHINE, "f32", 476)
    assert limits == Limits(1e9, 100e9, "f32, beads")
    assert Limits.of(MACHINE, "q8_0", 476).operations_per_s == 400e9
    by_bytes, by_operations = step_s(MODEL, limits, SCENARIOS["c1"])
    assert by_bytes == pytest.approx(0.5, rel=1e-4)
    assert by_operations == pytest.approx(0.0025, rel=1e-4)
    # Two prompts of 1,024 tokens, 0.2 Gop each, and two rows of logits.
    assert scenario_s(MODEL, limits, SCENARIOS["prefill"]) == pytest.approx(
        2048 * 0.2 / 100 + 0.001, rel=1e-3
    )


def test_what_is_in_the_log_is_not_measured_again(tmp_path):
    log = Log(tmp_path / "runs" / "a.jsonl")
    log.add({"round": 0, "scenario": "c1", "duration": 1.0})
    again = Log(log.path)
    assert again.has({"round": 0, "scenario": "c1"})
    assert not again.has({"round": 1, "scenario": "c1"})
