"""A million simulated requests under pressure for each scheduling policy: `make soak`.

Blocks are few, so sequences are preempted all the time; requests come in bursts, and some share a prefix.
`octavo-bench sim` ends at once if a law of memory or scheduling breaks, a token is not what its request gets
alone, a block leaks, or a request takes longer than its policy allows. Beyond that all policies must give the
very outputs of a run without pressure.

    python3 benches/soak.py [--num-requests N]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

TRACE = (
    "--input-len 48 --output-len 24 --range-ratio 0.9 --prefix-len 32 --num-prefixes 16 --request-rate 110 "
    "--burstiness 0.3 --num-priorities 4 --num-tenants 8 --vocab-size 500 --num-stop-ids 4"
)
# The mean sequence of 92 tokens has 6 blocks: a third of the slots can be full.
PRESSED = "--num-blocks 64 --max-num-seqs 32 --max-num-batched-tokens 256"
ROOMY = "--num-blocks 65536 --max-num-seqs 1024 --pipeline-depth 1 --check end"
# Virtual times at which the device keeps up, with bursts that make a queue.
DEVICE = "--step-us 2500 --token-us 10"
POLICIES = {
    "fcfs": "",
    "priority": "",
    "lpm": "",
    "fair": "",
    "fcfs, a host tier": "--host-blocks 64",
    "fcfs, deaths": "--kill-every 10007",
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--num-requests", type=int, default=1_000_000, help="requests of each run")
    requests = parser.parse_args().num_requests
    subprocess.run(["cargo", "build", "--locked", "--release", "--package", "octavo-bench"], check=True)

    print(f"{requests} requests a run")
    expected = simulate(requests, "fcfs", ROOMY)
    show("no pressure", expected)
    failed = False
    for name, flags in POLICIES.items():
        report = simulate(requests, name.split(",")[0], f"{PRESSED} {flags}")
        show(name, report)
        whole = report["completed"] == requests and report["preemptions"] > requests // 1000
        if not whole or report["digest"] != expected["digest"]:
            print(f"soak: {name}: not what the run without pressure gave", file=sys.stderr)
            failed = True
    return int(failed)


def simulate(requests: int, policy: str, flags: str) -> dict[str, float]:
    """The report of one run; ends the program if a law is broken."""
    program = f"target/release/octavo-bench sim --num-requests {requests} --scheduling-policy {policy}"
    command = [*f"{program} {TRACE} {DEVICE} {flags}".split(), "--json"]
    start = time.monotonic()
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"soak: {policy} {flags}: {run.stderr}")
    report: dict[str, float] = json.loads(run.stdout)
    return {**report, "seconds": time.monotonic() - start}


def show(name: str, report: dict[str, float]) -> None:
    print(
        f"{name:18} digest {report['digest']}  steps {report['steps']:8}  "
        f"preemptions {report['preemptions']:7}  deaths {report['deaths']:4}  "
        f"p99 ttft {report['p99_ttft_ms'] / 1e3:6.2f} s  "
        f"wait bound used {100 * report['wait_bound_used']:5.1f} %  {report['seconds']:6.1f} s",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
