"""Drives the servers, one run at a time, and keeps every run as one line of JSON."""

from __future__ import annotations

import contextlib
import json
import random
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .engines import Engine, Tools, engines
from .process import Server, ServerError, busy_cores, busy_process, cpu_of, machine_cpu_s
from .report import QUIET_CORES, Record
from .scenarios import REAL, TINY, Scenario
from .weights import TINY as TINY_FORMAT
from .weights import say

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .weights import Weights

KEPT = (
    "duration",
    "completed",
    "output_throughput",
    "total_input_tokens",
    "total_cached_tokens",
    "total_output_tokens",
    "median_ttft_ms",
    "median_tpot_ms",
    "p99_itl_ms",
)


# Formats that vLLM takes part in need more time than the others: it starts slowly.
SHARES = {"f32": 3, "bf16": 3, TINY_FORMAT: 2}


@dataclass(frozen=True)
class Plan:
    """What is measured, and for how long."""

    formats: list[str]
    scenarios: frozenset[str]
    engines: frozenset[str]
    rounds: int
    repeats: int
    minutes: float
    limit_s: float
    quick: bool
    noisy: bool


class Log:
    """The runs of one file; what is there is not measured again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        self.records: list[Record] = [json.loads(line) for line in lines]

    def add(self, record: Record) -> None:
        self.records.append(record)
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def has(self, key: Record) -> bool:
        return any(all(record.get(name) == value for name, value in key.items()) for record in self.records)


class Measurement:
    """One call of `python -m benches.peers`."""

    def __init__(
        self, plan: Plan, log: Log, weights: Weights, *, tools: Tools, load: Path, logs: Path
    ) -> None:
        self.plan = plan
        self.log = log
        self.weights = weights
        self.tools = tools
        self.load = load
        self.logs = logs
        logs.mkdir(parents=True, exist_ok=True)

    def run(self) -> None:
        """Measure everything of the plan that is not in the log yet, as far as time allows.

        Each format gets a share of the time that is left. What is asked first is most important: where time
        is short, later scenarios are left out.
        """
        end = time.monotonic() + 60 * self.plan.minutes
        blocks = [(turn, format_) for turn in range(self.plan.rounds) for format_ in self.plan.formats]
        for index, (turn, format_) in enumerate(blocks):
            left = sum(SHARES.get(other, 1) for _, other in blocks[index:])
            now = time.monotonic()
            if now > end:
                say(f"out of time before round {turn + 1}, {format_}; the same command goes on from here")
                return
            self.format({"round": turn, "format": format_}, now + (end - now) * SHARES.get(format_, 1) / left)

    def format(self, where: Record, end: float) -> None:
        """Measure one format: all its servers live, all but the measured one paused."""
        scenarios = TINY if where["format"] == TINY_FORMAT else REAL
        # Scenario by scenario in every repeat, and who goes first takes turns: a drift falls on all alike.
        todo = {
            engine: [
                (scenario, repeat)
                for repeat in range(self.plan.repeats)
                for scenario in scenarios
                if scenario.name in self.plan.scenarios
                and (not engine.only or scenario.name in engine.only)
                and not self.log.has(run_key(where, engine, scenario.name, repeat))
            ]
            for engine in engines(where["format"], self.weights, self.tools, self.plan.quick)
            if engine.engine in self.plan.engines
        }
        with contextlib.ExitStack() as stack:
            started = {e: stack.enter_context(self.started(e, where)) for e, runs in todo.items() if runs}
            live = [(engine, server) for engine, server in started.items() if server]
            for repeat in range(self.plan.repeats if live else 0):
                turn = repeat % len(live)
                for scenario in scenarios:
                    for engine, server in live[turn:] + live[:turn]:
                        if (scenario, repeat) not in todo[engine]:
                            continue
                        if time.monotonic() > end:
                            say(f"{where['format']}: out of time at repeat {repeat + 1}, {scenario.name}")
                            return
                        self.measure(run_key(where, engine, scenario.name, repeat), scenario, server)

    @contextlib.contextmanager
    def started(self, engine: Engine, where: Record) -> Iterator[Server | None]:
        """Start a server, keep its start-up figures, pause it, and stop it at the end."""
        self.wait_quiet()
        name = f"{where['format']}-{engine.engine}-{engine.setting}".replace(" ", "-").replace(",", "")
        server = Server(list(engine.command), dict(engine.environment), self.logs / f"{name}.log")
        try:
            key = run_key(where, engine, "start", 0)
            try:
                seconds, text = server.wait_ready(engine.start_limit_s)
            except ServerError as error:
                print(error, file=sys.stderr)
                self.log.add({**key, "error": str(error)[-2000:]})
                yield None
                return
            found = {"ready_s": seconds, "pss_mib": server.pss_mib(), "text": text}
            command = {"command": server.command, "environment": dict(engine.environment)}
            self.log.add({**key, **found, **command})
            say(f"{name}: ready after {seconds:.1f} s, {found['pss_mib']:.0f} MiB, says {text!r}")
            server.pause()
            yield server
        finally:
            server.stop()

    def measure(self, key: Record, scenario: Scenario, server: Server) -> None:
        """Run a scenario once; again, twice at most, where the machine was not quiet."""
        for left in (2, 1, 0):
            self.wait_quiet()
            server.resume()
            try:
                record = self.drive(scenario, server, key["repeat"])
            finally:
                server.pause()
            if self.plan.noisy or record["other_cores"] <= QUIET_CORES or not left:
                break
            say(f"others used {record['other_cores']:.2f} processors meanwhile: again")
        if "failed" in record:
            # Not a figure, and not a bound either; the next call tries again.
            say(f"{key}: {record['failed']}")
            self.log.add({**key, "scenario": "failed", "of": scenario.name, "error": record["failed"]})
            return
        self.log.add({**key, **record})
        shown = "cut" if "error" in record else f"{record[scenario.metric]:.1f} {scenario.unit}"
        what = f"{key['format']} {scenario.name} {key['engine']} ({key['setting']})"
        say(f"{what}: {shown}, others {record['other_cores']:.2f}")

    def drive(self, scenario: Scenario, server: Server, repeat: int) -> Record:
        """Run the load client once."""
        # A prompt may not come twice, or a prefix cache answers it: each repeat has a seed of its own, which
        # all engines share.
        seed = random.Random(f"{scenario.name} {repeat}").randrange(1 << 31)
        limit = self.plan.limit_s
        command = [str(self.load), "load", "--port", str(server.port), "--model", "m", "--json", "-"]
        command += scenario.load_arguments(seed, limit)
        with contextlib.ExitStack() as stack:
            busy = stack.enter_context(busy_process()) if scenario.busy else None
            before, start = ledger(server, busy), time.monotonic()
            try:
                done = subprocess.run(
                    command, check=False, capture_output=True, text=True, timeout=limit + 30
                )
                found, error = parse(done)
            except subprocess.TimeoutExpired:
                found, error = {}, "timeout: the load client did not end"
            seconds = time.monotonic() - start
            after = ledger(server, busy)
        used, of_server, of_client, of_busy, stolen = (b - a for a, b in zip(before, after, strict=True))
        record = {name: found[name] for name in KEPT if name in found}
        record |= {"server_cpu_s": of_server, "client_cpu_s": of_client, "pss_mib": server.pss_mib()}
        record["other_cores"] = max(0.0, used + stolen - of_server - of_client - of_busy) / seconds
        kinds = set(found.get("errors", {}))
        if kinds == {"timeout"} or "timeout" in error:
            # Not finished in time: what it would have needed is at least the limit.
            for name in ("output_throughput", "duration"):
                record.pop(name, None)
            return {**record, "error": f"not finished in {limit:.0f} s", "limit_s": limit}
        if error or kinds:
            return {**record, "failed": error or f"{found['errors']}: {found['error_examples'][:1]}"}
        record["prompt_throughput"] = record["total_input_tokens"] / record["duration"]
        return record

    def wait_quiet(self, patience_s: float = 120) -> None:
        """Return when other programs leave the machine alone."""
        end = time.monotonic() + patience_s
        while not self.plan.noisy and (busy := busy_cores(1)) > QUIET_CORES:
            if time.monotonic() > end:
                sys.exit(
                    f"peers: the machine is not quiet: others use {busy:.2f} processors. Stop them and "
                    "say the same command again (it goes on from here), or say --noisy: that proves nothing."
                )


def run_key(where: Record, engine: Engine, scenario: str, repeat: int) -> Record:
    return {
        **where,
        "engine": engine.engine,
        "setting": engine.setting,
        "scenario": scenario,
        "repeat": repeat,
    }


def ledger(server: Server, busy: subprocess.Popen[bytes] | None) -> tuple[float, float, float, float, float]:
    """Return processor seconds so far: of all, the server, the client, the busy process, and stolen ones."""
    used, stolen = machine_cpu_s()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    here = resource.getrusage(resource.RUSAGE_SELF)
    client = children.ru_utime + children.ru_stime + here.ru_utime + here.ru_stime
    return used, server.cpu_s(), client, cpu_of(busy.pid) if busy else 0.0, stolen


def parse(done: subprocess.CompletedProcess[str]) -> tuple[Record, str]:
    """Return the client's report and, where there is none, what it said instead."""
    try:
        return json.loads(done.stdout), ""
    except ValueError:
        return {}, f"the load client failed: {done.stderr[-500:]}"
