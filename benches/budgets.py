"""Instructions of the hot paths beside their budgets: `make budgets`.

Wall time tells little on a machine that does other things, so this counts instructions with callgrind: a
run's cost is what more runs of the same program add. One that takes over its budget fails. One that takes far
less is a reason to lower the budget: run with `--update` and commit `benches/budgets.json`.

Kernels are counted on AVX2, the best that callgrind knows.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

BUDGETS = Path(__file__).with_suffix(".json")
# Hash maps are seeded at random, so counts of the core differ a little from run to run.
SLACK = 1.05
FEW, MANY = 4, 24

MICRO = "target/release/octavo-bench micro {} --runs"
KERNEL = "target/release/examples/count {}"
COMMANDS = {
    **{
        name: MICRO.format(name)
        for name in (
            "decode/256x1024",
            "decode/256x8192",
            "decode/1024x1024",
            "prefix-match/8192-of-1M",
            "prefix-insert/8192-of-1M",
            "prefix-evict/8192-of-1M",
        )
    },
    **{
        name: KERNEL.format(name)
        for name in (
            *(f"linear/{dtype}/{rows}" for dtype in ("f32", "bf16") for rows in (1, 8, 64)),
            *(f"quant/{format_}/{rows}" for format_ in ("q8_0", "q4_1", "q4_k") for rows in (1, 8, 64)),
            *(f"attention/{dtype}/{phase}" for dtype in ("f32", "bf16") for phase in ("decode", "prefill")),
            "greedy",
        )
    },
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("filter", nargs="?", default="", help="only paths with this in their name")
    parser.add_argument("--update", action="store_true", help="make today's counts the budgets")
    args = parser.parse_args()
    packages = ["--package", "octavo-bench", "--package", "octavo-cpu", "--bins", "--examples"]
    subprocess.run(["cargo", "build", "--locked", "--release", *packages], check=True)
    budgets: dict[str, int] = json.loads(BUDGETS.read_text())
    over = []
    print(f"{'instructions a run':28}{'now':>14}{'budget':>14}{'ratio':>8}")
    chosen = [name for name in COMMANDS if args.filter in name]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        counts = pool.map(cost, chosen)
    for name, found in zip(chosen, counts, strict=True):
        if args.update:
            budgets[name] = found
        ratio = found / budgets[name]
        print(f"{name:28}{found:14,}{budgets[name]:14,}{ratio:8.3f}", flush=True)
        if ratio > SLACK:
            over.append(name)
    if args.update:
        BUDGETS.write_text(json.dumps(budgets, indent=2) + "\n")
    if over:
        print(f"budgets: over budget by more than {SLACK - 1:.0%}: {', '.join(over)}", file=sys.stderr)
    return int(bool(over))


def cost(name: str) -> int:
    """Instructions of one run of a path."""
    return (count(COMMANDS[name], MANY) - count(COMMANDS[name], FEW)) // (MANY - FEW)


def count(program: str, runs: int) -> int:
    """Instructions of a program that runs its path so many times."""
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    environment = {**os.environ, "OCTAVO_CPU_ISA": "avx2"}
    command = [*valgrind, *program.split(), str(runs)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    counted = re.search(r"Collected : (\d+)", run.stderr)
    if run.returncode != 0 or counted is None:
        sys.exit(f"budgets: {program} {runs} failed:\n{run.stderr}")
    return int(counted[1])


if __name__ == "__main__":
    sys.exit(main())
