"""`octavo serve` as a process of its own, and what happens to it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.cli.api import Api

if TYPE_CHECKING:
    from collections.abc import Callable

TIMEOUT_S = 120.0


class Served:
    """A server process on a free port; its lines are kept."""

    def __init__(self, options: dict[str, Any], **more: Any) -> None:
        given = {**options, "port": 0, **more}
        flags = [item for name, value in given.items() for item in ("--" + name, str(value))]
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "octavo", "serve", *flags], stderr=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.end()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip())

    def end(self) -> int:
        """Wait for the process and its last line."""
        status = self.process.wait(TIMEOUT_S)
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return status

    @property
    def url(self) -> str:
        """Where the API is, once the server is ready."""
        wait_until(lambda: self._ready() is not None or self.process.poll() is not None)
        ready = self._ready()
        assert ready is not None, "\n".join(self.lines)
        return ready.split()[3] + "/v1"

    def api(self, key: str | None = None) -> Api:
        """A client, once the server is ready."""
        return Api(self.url, key)

    def metrics(self) -> dict[str, float]:
        """Metrics by name; of those that differ in a label, the last."""
        with urllib.request.urlopen(self.url.removesuffix("/v1") + "/metrics", timeout=60) as response:
            lines = [line for line in response.read().decode().splitlines() if not line.startswith("#")]
        return {line.split("{")[0].split(" ")[0]: float(line.rsplit(" ", 1)[1]) for line in lines}

    def _ready(self) -> str | None:
        return next((line for line in self.lines if line.startswith("octavo: Ready on ")), None)

    def worker(self, but: int | None = None) -> int:
        """The worker's process id, once there is one other than `but`."""
        found: list[int] = []

        def look() -> bool:
            found[:] = [pid for pid in children(self.process.pid) if pid != but]
            return bool(found)

        wait_until(look)
        return found[0]


def children(parent: int) -> list[int]:
    """Processes that run as workers of `parent`."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            status = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes()
        except (OSError, IndexError):
            continue
        if int(status[1]) == parent and b"octavo.executor.worker" in command:
            found.append(int(entry.name))
    return found


def wait_until(state: Callable[[], bool]) -> None:
    """Wait for a state, a bounded time."""
    deadline = time.monotonic() + TIMEOUT_S
    while not state():
        assert time.monotonic() < deadline
        os.sched_yield()
        threading.Event().wait(0.02)


def completion(api: Api, prompt: str, max_tokens: int, on_chunk: Callable[[int], None]) -> tuple[str, str]:
    """Stream a greedy completion and return text and finish reason; `on_chunk` gets the number of chunks."""
    body = {
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "model": api.models()[0],
    }
    text, reason = "", ""
    for count, chunk in enumerate(api.stream("/completions", body), 1):
        for choice in chunk["choices"]:
            text += choice["text"]
            reason = choice["finish_reason"] or reason
        on_chunk(count)
    return text, reason
