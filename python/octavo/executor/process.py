"""A worker in a process of its own, as the server sees it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.executor.channel import Buffers, Channel, PeerDiedError, SharedMemory
from octavo.executor.errors import WorkerAbandonedError, WorkerDiedError, WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from octavo.boundary import FrameLayout, Limits

# OpenMP threads that spin at barriers starve the server's own threads: a step takes ten times as long as soon
# as any other process wants a processor. The user's own setting wins.
THREAD_MANNERS = {"OMP_WAIT_POLICY": "PASSIVE"}

_STEP_TIMEOUT_S = 300.0
_EXIT_TIMEOUT_S = 5.0
_POLL_S = 0.5


class ProcessExecutor:
    """Starts the worker on construction; `load` and `start` must follow, then steps."""

    def __init__(
        self, config: Mapping[str, Any], progress: Callable[[str], None], leave: Callable[[], bool]
    ) -> None:
        """`config` is for worker.runner_config, `leave` says that nobody waits for results any more.

        Raises WorkerError where the system allows no further process.
        """
        self._config = dict(config)
        self._progress = progress
        self._leave = leave
        self._started: tuple[Limits, FrameLayout, int, int] | None = None
        self.buffers = Buffers([], [])
        try:
            self._memory = SharedMemory()
            self.host_memory = SharedMemory()
        except OSError as error:
            raise _cannot_start(error) from error
        try:
            self._spawn()
        except WorkerError:
            self._close_memory()
            raise

    @property
    def worker_pid(self) -> int | None:
        """The worker's process."""
        return self._process.pid

    def load(self) -> dict[str, Any]:
        """Wait for the model; returns the fields of ModelFacts. Raises WorkerError with one readable line."""
        facts: dict[str, Any] = self._expect("loaded")["facts"]
        self._facts = facts
        return facts

    def start(self, limits: Limits, layout: FrameLayout, depth: int, host_bytes: int) -> None:
        """Map step memory on both sides and get ready for steps, with a host tier of `host_bytes`."""
        self._started = (limits, layout, depth, host_bytes)
        if not self.buffers.frames:
            self.buffers = self._memory.buffers(depth, layout["frame_bytes"], layout["result_bytes"])
        overlap = self._facts["device"] != "cpu"
        host = {"slots": limits["host_blocks"], "bytes": host_bytes}
        self._send({"type": "start", "layout": layout, "depth": depth, "overlap": overlap, "host": host})
        self._expect("started")

    def submit(self, index: int) -> None:
        """Have frame `index` computed."""
        try:
            self._channel.ring(index)
        except PeerDiedError:
            raise self._died() from None

    def wait(self) -> int | None:
        """The index of the next result that is ready; None if `leave` became true first."""
        waited = 0.0
        while not self._channel.wait(_POLL_S):
            waited += _POLL_S
            if self._leave():
                return None
            if waited >= _STEP_TIMEOUT_S:
                raise WorkerDiedError(f"the worker did not finish a step within {_STEP_TIMEOUT_S:.0f} s")
        return self._receive_index()

    def check(self) -> None:
        """Raise WorkerDiedError if the worker is gone while nothing is computed."""
        if self._process.poll() is not None:
            raise self._died()

    def restart(self) -> None:
        """Replace a dead worker by a new one in the same state as after `start`."""
        if self._started is None:
            raise WorkerError("the worker was never started")
        if self._leave():
            raise _abandoned()
        limits, layout, depth, host_bytes = self._started
        self._stop()
        groups = limits["groups"]
        self._config |= {"kv_blocks": [limits["num_blocks"], *(blocks for _, _, blocks in groups)]}
        self._spawn()
        self.load()
        self.start(limits, layout, depth, host_bytes)

    def close(self) -> None:
        """End the worker."""
        self._stop()
        self._close_memory()

    def _close_memory(self) -> None:
        self._memory.close()
        self.host_memory.close()

    def _spawn(self) -> None:
        try:
            ours, theirs = Channel.pair()
        except OSError as error:
            raise _cannot_start(error) from error
        passed = (theirs.fileno(), self._memory.fileno(), self.host_memory.fileno())
        package = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
        command = [sys.executable, "-P", "-m", "octavo.executor.worker", *map(str, passed)]
        try:
            # A session of its own: ^C in the terminal is for the server, which then ends the worker.
            self._process = subprocess.Popen(  # noqa: S603  (our own interpreter and module)
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=passed,
                start_new_session=True,
                env={**THREAD_MANNERS, **os.environ, "PYTHONPATH": path},
            )
        except OSError as error:
            ours.close()
            raise _cannot_start(error) from error
        finally:
            theirs.close()
        self._channel = ours
        self._send({"type": "load", "config": self._config})

    def _send(self, message: Mapping[str, Any]) -> None:
        try:
            self._channel.send(message)
        except PeerDiedError:
            raise self._died() from None

    def _expect(self, kind: str) -> dict[str, Any]:
        """The next message of `kind`, with progress reported on the way."""
        while True:
            while not self._channel.wait(_POLL_S):
                if self._leave():
                    raise _abandoned()
            message = self._receive()
            if isinstance(message, dict) and message["type"] == kind:
                return message
            if isinstance(message, dict) and message["type"] == "progress":
                self._progress(message["text"])
                continue
            raise WorkerError(f"unexpected message from the worker: {message}")

    def _receive_index(self) -> int:
        message = self._receive()
        if not isinstance(message, int):
            raise WorkerError(f"unexpected message from the worker: {message}")
        return message

    def _receive(self) -> int | dict[str, Any]:
        try:
            message = self._channel.receive()
        except PeerDiedError:
            raise self._died() from None
        if isinstance(message, dict) and message["type"] == "error":
            kind = WorkerError if message["while"] == "loading" else WorkerDiedError
            raise kind(message["message"], message["traceback"])
        return message

    def _died(self) -> WorkerDiedError:
        try:
            status = self._process.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return WorkerDiedError("the worker closed its channel")
        return WorkerDiedError(f"the worker {_how_it_ended(status)}")

    def _stop(self) -> None:
        self._channel.close()
        try:
            self._process.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _abandoned() -> WorkerAbandonedError:
    return WorkerAbandonedError("stopped while the model was loading")


def _cannot_start(error: OSError) -> WorkerError:
    return WorkerError(f"a worker process cannot be started: {error.strerror or error}")


def _how_it_ended(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hint = " (out of memory?)" if name == "SIGKILL" else ""
    return f"was ended by {name}{hint}"
