"""A worker in this process: the same steps, without a second process."""

from __future__ import annotations

import os
import traceback
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from octavo.executor.channel import Buffers, SharedMemory, private_buffers
from octavo.executor.errors import WorkerError
from octavo.executor.process import THREAD_MANNERS
from octavo.executor.worker import one_line, runner_config, step_views

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from octavo.boundary import FrameLayout, Limits
    from octavo.executor.frame import Frame, StepResult
    from octavo.executor.runner import Runner


class InlineExecutor:
    """Computes a step when it is submitted. Calls come from one thread at a time."""

    def __init__(self, config: Mapping[str, Any], progress: Callable[[str], None]) -> None:
        self._config = dict(config)
        self._progress = progress
        self._runner: Runner | None = None
        self._steps: list[tuple[Frame, StepResult]] = []
        self._ready: list[int] = []
        self.buffers = Buffers([], [])
        self.host_memory = SharedMemory()

    @property
    def worker_pid(self) -> int | None:
        """The worker has no process of its own."""
        return None

    def load(self) -> dict[str, Any]:
        """Load the model; returns the fields of ModelFacts. Raises WorkerError with one readable line."""
        for name, value in THREAD_MANNERS.items():
            # Read once, when torch is first imported.
            os.environ.setdefault(name, value)
        from octavo.executor.runner import Runner  # noqa: PLC0415  (imports torch: seconds)

        try:
            runner = Runner(runner_config(self._config))
            facts = asdict(runner.load(self._progress))
        except Exception as error:
            raise WorkerError(one_line(error), traceback.format_exc()) from error
        self._runner = runner
        return facts

    def start(self, limits: Limits, layout: FrameLayout, depth: int, host_bytes: int) -> None:
        """Get ready for steps, with a host tier of `host_bytes`."""
        if limits["host_blocks"] and self._runner is not None:
            self._runner.attach_host(self.host_memory.map(host_bytes), limits["host_blocks"])
        self.buffers = private_buffers(depth, layout["frame_bytes"], layout["result_bytes"])
        self._steps = step_views(self.buffers, layout)

    def submit(self, index: int) -> None:
        """Compute frame `index`."""
        if self._runner is None:
            raise WorkerError("the model is not loaded")
        try:
            self._runner.execute(*self._steps[index])
        except Exception as error:
            raise WorkerError(one_line(error), traceback.format_exc()) from error
        self._ready.append(index)

    def wait(self) -> int | None:
        """The index of the oldest result."""
        return self._ready.pop(0)

    def check(self) -> None:
        """A worker in this process is there as long as the process is."""

    def restart(self) -> None:
        """A worker in this process cannot be replaced."""
        raise WorkerError("the worker runs in this process and cannot be started again")

    def close(self) -> None:
        """Let go of the model."""
        self._runner = None
        self._steps = []
        self.host_memory.close()
