"""Starting, pausing and stopping servers, and what the machine's processors are doing meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TICKS = os.sysconf("SC_CLK_TCK")
PROMPT = "The capital of France is"


class ServerError(Exception):
    """A server did not start, or did not answer."""


class Server:
    """A server and the processes that it starts, on a free port of 127.0.0.1."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.log = log
        self.command = [part.replace("{port}", str(self.port)) for part in command]
        self.started = time.monotonic()
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    def wait_ready(self, limit_s: float) -> tuple[float, str]:
        """Return seconds from the start of the process to its first answer, and the answer's text."""
        while self.process.poll() is None and time.monotonic() < self.started + limit_s:
            with contextlib.suppress(OSError, ValueError, KeyError):
                text = self.complete()
                return time.monotonic() - self.started, text
            time.sleep(0.05)
        state = f"ended with {self.process.poll()}" if self.process.poll() is not None else "gave no answer"
        tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-12:])
        raise ServerError(f"{tail}\nthe server {state} within {limit_s:.0f} s: {' '.join(self.command)}")

    def complete(self) -> str:
        """Return eight tokens after a prompt."""
        body = {"model": "m", "prompt": PROMPT, "max_tokens": 8, "temperature": 0}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            return str(json.load(response)["choices"][0]["text"])

    def pause(self) -> None:
        """Take the processors from it, whatever it spins on; memory stays."""
        signal_all(tree(self.process.pid), signal.SIGSTOP)

    def resume(self) -> None:
        signal_all(tree(self.process.pid), signal.SIGCONT)

    def stop(self) -> None:
        """End it and everything that it started."""
        members = tree(self.process.pid)
        signal_all(members[:1], signal.SIGTERM)
        signal_all(members, signal.SIGCONT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(15)
        signal_all(members, signal.SIGKILL)
        self.process.wait()

    def cpu_s(self) -> float:
        """Processor seconds of all its processes so far."""
        return sum(cpu_of(pid) for pid, _ in tree(self.process.pid))

    def pss_mib(self) -> float:
        """Resident memory of all its processes; what they share counts once."""
        return sum(pss_of(pid) for pid, _ in tree(self.process.pid))


def tree(root: int) -> list[tuple[int, str]]:
    """Return (id, start time) of a process and all that descend from it, the root first.

    The start time tells a process from a later one with the same id.
    """
    children: dict[int, list[int]] = {}
    starts: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        fields = stat_fields(int(entry.name)) if entry.name.isdigit() else []
        if fields and fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(int(entry.name))
            starts[int(entry.name)] = fields[19]
    found = [root] if root in starts else []
    for pid in found:
        found += children.get(pid, [])
    return [(pid, starts[pid]) for pid in found]


def signal_all(members: list[tuple[int, str]], number: signal.Signals) -> None:
    """Send a signal to those that are still there."""
    for pid, start in members:
        fields = stat_fields(pid)
        if fields and fields[19] == start:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; none if the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()


def cpu_of(pid: int) -> float:
    fields = stat_fields(pid)
    # Children that were waited for count too: a helper that came and went is the server's work.
    return sum(int(ticks) for ticks in fields[11:15]) / TICKS if fields else 0.0


def pss_of(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def machine_cpu_s() -> tuple[float, float]:
    """Return processor seconds used by all programs since boot, and those that the hypervisor took."""
    ticks = [int(part) for part in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _, _, irq, softirq, steal = ticks[:8]
    return (user + nice + system + irq + softirq) / TICKS, steal / TICKS


def busy_cores(seconds: float) -> float:
    """Return how many processors are busy or taken away now, on average over so many seconds."""
    before, start = sum(machine_cpu_s()), time.monotonic()
    time.sleep(seconds)
    return (sum(machine_cpu_s()) - before) / (time.monotonic() - start)


@contextlib.contextmanager
def busy_process() -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that computes without pause."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()
