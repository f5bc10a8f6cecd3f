#!/usr/bin/env python3
"""What a busy neighbour costs: throughput with and without another process that never rests.

    python benches/busy.py [--runs N] [--streams 1 8 256] [--octavo "FLAG ..."]

Serves the demo model to 1 and 8 streams and the tiny random model of `stack.py` to 256, in interleaved runs.
Prints medians with ranges, and how many times slower it is with the neighbour. Two threads that compute and
one that spins share two cores at best as 2 : 1, so 1.5 is what is fair there; a pool whose threads wait for
one that has lost its core does far worse.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from stack import ROOT, TINY, report, server

if TYPE_CHECKING:
    from collections.abc import Iterator

SPIN = "while True: pass"
Load = tuple[int, int, int]
"""Streams, requests, output tokens of each."""
DEMO: tuple[Load, ...] = ((1, 2, 160), (8, 16, 96))
TINY_LOAD: Load = (256, 512, 96)
INPUT_LEN = 32


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 256], help="which of these")
    parser.add_argument("--octavo", default="", metavar="FLAGS", help="further options of octavo serve")
    args = parser.parse_args()
    more = [*args.octavo.split(), "--kv-cache-memory-bytes", "1G", "--no-enable-prefix-caching"]
    pull = [sys.executable, "-m", "octavo", "pull", "demo"]
    tokenizer = subprocess.check_output(pull, text=True).strip().splitlines()[-1]
    demo = [load for load in DEMO if load[0] in args.streams]
    with server(["demo", *more]) as port:
        for load in demo:
            compare(f"demo, {load[0]} streams", port, args.runs, load)
    if TINY_LOAD[0] not in args.streams:
        return
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(TINY))
        tiny = [folder, "--tokenizer", tokenizer, "--load-format", "dummy", *more]
        with server(tiny) as port:
            compare(f"tiny, {TINY_LOAD[0]} streams", port, args.runs, TINY_LOAD)


def compare(what: str, port: int, runs: int, load: Load) -> None:
    streams, _, length = load
    throughput(port, (streams, streams, length // 4))
    quiet, busy = [], []
    for _ in range(runs):
        quiet.append(throughput(port, load))
        with neighbour():
            busy.append(throughput(port, load))
    report(f"{what}: output tokens/s", quiet)
    report("  beside a busy process", busy)
    print(f"  {statistics.median(quiet) / statistics.median(busy):.2f} times slower", flush=True)


@contextlib.contextmanager
def neighbour() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", SPIN])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def throughput(port: int, load: Load) -> float:
    """Output tokens a second."""
    streams, requests, length = load
    command = ["cargo", "run", "--quiet", "--release", "-p", "octavo-bench", "--", "load"]
    command += ["--port", str(port), "--num-prompts", str(requests), "--concurrency", str(streams)]
    command += ["--input-len", str(INPUT_LEN), "--output-len", str(length), "--num-warmups", "0", "--json"]
    found = json.loads(subprocess.check_output(command, cwd=ROOT, stderr=subprocess.DEVNULL))
    return float(found["output_throughput"])


if __name__ == "__main__":
    main()
