"""What a served model takes of the machine: memory, cores, and its share of a busy one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from served import Served, completion

if TYPE_CHECKING:
    from collections.abc import Iterator

PARAMETERS = 134_515_008
KV_BYTES = 32 << 20
MOST_BESIDE_BYTES = 600 << 20
STREAM_TOKENS = 48


def proportional_bytes(process: int) -> int:
    """Memory of a process; pages that others share count in part."""
    for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no Pss")


@pytest.mark.parametrize(
    ("options", "weight_bytes"),
    [
        ({}, None),
        ({"dtype": "bfloat16"}, PARAMETERS * 2),
        ({"dtype": "float32"}, PARAMETERS * 4),
    ],
    ids=["q4_1", "bfloat16", "float32"],
)
def test_memory_is_weights_and_kv_and_little_else(
    gguf: Path, options: dict[str, Any], weight_bytes: int | None
) -> None:
    weights = weight_bytes or gguf.stat().st_size
    kv = {"kv-cache-memory-bytes": KV_BYTES, "max-model-len": 512}
    with Served({"model": str(gguf), **kv, **options}) as server:
        completion(server.api(), "The capital of France is", 32, lambda _: None)
        taken = sum(proportional_bytes(one) for one in (server.process.pid, server.worker()))
    beside = taken - weights - KV_BYTES
    assert beside <= MOST_BESIDE_BYTES, f"{beside >> 20} MiB beside weights and KV"


def test_threads_stay_on_the_cores_that_were_listed(tiny_options: dict[str, Any]) -> None:
    core = max(os.sched_getaffinity(0))
    flags = {name.replace("_", "-"): value for name, value in tiny_options.items()}
    with Served(flags, **{"cpu-bind": f"{core}"}) as server:
        completion(server.api(), "One, two", 4, lambda _: None)
        worker = server.worker()
        assert os.sched_getaffinity(worker) == {core}
        assert any(f"one thread computes, on cores {core}" in line for line in server.lines)


def test_a_core_that_is_not_there_ends_the_start_with_the_reason(tiny_options: dict[str, Any]) -> None:
    flags = {name.replace("_", "-"): value for name, value in tiny_options.items()}
    with Served(flags, **{"cpu-bind": "0,60000"}) as server:
        assert server.end() == 1
    assert "core 60000 cannot be used" in server.lines[-1]


@pytest.fixture
def neighbour() -> Iterator[subprocess.Popen[bytes]]:
    """A process that never rests."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield process
    process.kill()
    process.wait()


def test_a_busy_neighbour_costs_a_share_and_not_more(
    demo_server: Served, request: pytest.FixtureRequest
) -> None:
    """Generous: a fair share is 1.5 on two cores; a pool that waits for lost cores is ten times slower."""

    def seconds() -> float:
        begin = time.perf_counter()
        completion(demo_server.api(), "Once upon a time", STREAM_TOKENS, lambda _: None)
        return time.perf_counter() - begin

    seconds()
    quiet = min(seconds() for _ in range(3))
    request.getfixturevalue("neighbour")
    busy = min(seconds() for _ in range(3))
    assert busy <= 4 * quiet, f"{quiet:.2f} s alone, {busy:.2f} s beside a busy process"
