#!/usr/bin/env python3
"""Latency of tokens while a long prompt arrives: what it costs those who are being answered.

    python benches/long_prompt.py [--runs N] [--streams N] [--prompt TOKENS]

A server with the tiny random model of `stack.py` answers some streams; in every other run a prompt of 16,384
tokens arrives once all of them have begun. Prints p50, p99 and the greatest time between two tokens of a
stream, and the long prompt's time to its first token, as medians of the runs with ranges, for several token
budgets of a step (`--max-num-batched-tokens`): a smaller one keeps tokens closer together and takes longer
over the prompt.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from stack import TINY, report, server

OUTPUT_LEN = 600


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=16_384)
    args = parser.parse_args()
    pull = [sys.executable, "-m", "octavo", "pull", "demo"]
    tokenizer = subprocess.check_output(pull, text=True).strip().splitlines()[-1]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(
            json.dumps({**TINY, "max_position_embeddings": args.prompt + 1024})
        )
        for budget in (2048, 512, 128):
            options = [
                folder,
                "--tokenizer",
                tokenizer,
                "--load-format",
                "dummy",
                "--no-enable-prefix-caching",
            ]
            options += ["--kv-cache-memory-bytes", "1G", "--max-num-batched-tokens", str(budget)]
            options += ["--max-num-seqs", "64"]
            with server(options) as port:
                runs = {long: [] for long in (False, True)}
                measure(port, args.streams, None)
                for _ in range(args.runs):
                    for long, found in runs.items():
                        found.append(measure(port, args.streams, args.prompt if long else None))
            print(f"budget {budget} tokens a step, {args.streams} streams")
            for long, found in runs.items():
                name = f"  {'with' if long else 'without'} the long prompt: "
                for at, what in enumerate(("p50 ms", "p99 ms", "max ms")):
                    report(name + what, [run[0][at] for run in found])
            report("  the long prompt's first token after, s", [run[1] for run in runs[True]])


def measure(port: int, streams: int, prompt: int | None) -> tuple[tuple[float, float, float], float]:
    """((p50, p99, max) milliseconds between tokens, seconds to the long prompt's first token)."""
    begun = threading.Barrier(streams + 1)
    gaps: list[float] = []

    def stream() -> None:
        last = None
        for at in complete(port, 32, OUTPUT_LEN):
            if last is None:
                begun.wait()
            else:
                gaps.append(1000 * (at - last))
            last = at

    threads = [threading.Thread(target=stream) for _ in range(streams)]
    for thread in threads:
        thread.start()
    begun.wait()
    start = time.perf_counter()
    first = next(iter(complete(port, prompt, 1))) - start if prompt else 0.0
    for thread in threads:
        thread.join()
    cuts = statistics.quantiles(gaps, n=100)
    return (cuts[49], cuts[98], max(gaps)), first


def complete(port: int, length: int, output_len: int) -> Any:
    """The time of each chunk of a streamed completion."""
    body = {
        "model": "",
        "prompt": [random.randrange(1000, 40_000) for _ in range(length)],
        "max_tokens": output_len,
        "ignore_eos": True,
        "stream": True,
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as response:
        for line in response:
            if line.startswith(b"data: {"):
                yield time.perf_counter()


if __name__ == "__main__":
    main()
