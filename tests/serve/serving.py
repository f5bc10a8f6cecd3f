"""A real `octavo serve` process, as a user would start it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

START_TIMEOUT_S = 120.0


class Server:
    """A server process and its address."""

    host = "127.0.0.1"

    def __init__(self, model: Path, log: Path, *options: str) -> None:
        self.port = free_port()
        self.log = log
        command = [sys.executable, "-m", "octavo", "serve", str(model), "--served-model-name", "demo"]
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [*command, "--port", str(self.port), *options], stdout=file, stderr=subprocess.STDOUT
            )

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"the server ended:\n{self.log.read_text()}"
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                self.get("/ready")
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.05)
        raise AssertionError(f"not ready after {START_TIMEOUT_S} s:\n{self.log.read_text()}")

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=60) as response:
            return response.read().decode()

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    def metrics(self) -> dict[str, float]:
        """Metrics without a distinguishing label, by name."""
        lines = [line for line in self.get("/metrics").splitlines() if line and not line.startswith("#")]
        return {line.split("{")[0].split(" ")[0]: float(line.rsplit(" ", 1)[1]) for line in lines}

    async def until(self, state: Callable[[dict[str, float]], bool], timeout_s: float = 60.0) -> None:
        """Waits until the metrics are in a state."""
        async with asyncio.timeout(timeout_s):
            while not state(await asyncio.to_thread(self.metrics)):
                await asyncio.sleep(0.02)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@contextlib.contextmanager
def serve(model: Path, log: Path, *options: str) -> Iterator[Server]:
    """A server that is ready; it is stopped at the end, and must stop cleanly."""
    server = Server(model, log, *options)
    try:
        server.wait_until_ready()
        yield server
        assert server.stop() == 0, server.log.read_text()
    finally:
        server.process.kill()
        server.process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
