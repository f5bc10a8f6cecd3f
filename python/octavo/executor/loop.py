"""The step loop: plan, compute, commit, with up to `pipeline_depth` steps in flight."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from octavo._core import Planned
from octavo.executor.deaths import PROVEN_S, PROVEN_STEPS, Deaths
from octavo.executor.errors import WorkerAbandonedError, WorkerDiedError, WorkerError

if TYPE_CHECKING:
    from octavo._core import EngineHandle
    from octavo.boundary import FrameLayout, Limits
    from octavo.executor.channel import Buffers, SharedMemory

_log = logging.getLogger("octavo")

_IDLE_S = 1.0


class Executor(Protocol):
    """Where steps are computed: in this process or in another."""

    buffers: Buffers
    host_memory: SharedMemory
    """Of the host tier; the worker's death does not touch it."""

    @property
    def worker_pid(self) -> int | None:
        """The worker's process, if it has one of its own."""

    def load(self) -> dict[str, Any]:
        """Load the model and say what it is."""

    def start(self, limits: Limits, layout: FrameLayout, depth: int, host_bytes: int) -> None:
        """Get ready for steps under these limits, with a host tier of `host_bytes`."""

    def submit(self, index: int) -> None:
        """Have frame `index` computed."""

    def wait(self) -> int | None:
        """The index of the next result; None when nobody waits for results any more."""

    def check(self) -> None:
        """Raise WorkerDiedError if the worker is gone."""

    def restart(self) -> None:
        """Replace a dead worker. Raises WorkerAbandonedError when nobody waits for it any more."""

    def close(self) -> None:
        """End the worker."""


class StepLoop:
    """Drives one engine with one executor, which must have started."""

    def __init__(self, handle: EngineHandle, executor: Executor, max_deaths: int) -> None:
        self._handle = handle
        self._executor = executor
        self._max_deaths = max_deaths
        self._deaths = Deaths(max_deaths)
        self._in_flight = 0

    def run(self) -> None:
        """Run until the engine is stopped. A worker that dies is replaced and its requests go on.

        Raises WorkerError once the engine has failed for good; all requests have been told then.
        """
        try:
            died = False
            while True:
                try:
                    if died:
                        self._executor.restart()
                        self._handle.recover()
                    if self._executor.worker_pid is not None:
                        self._handle.worker_is(self._executor.worker_pid)
                    self._deaths.in_service()
                    self._steps()
                except WorkerAbandonedError:
                    return
                except WorkerDiedError as death:
                    self._handle.lost_worker()
                    self._count(death)
                    died = True
                else:
                    return
        except BaseException as error:
            self._handle.fail(str(error) or type(error).__name__)
            raise

    def _count(self, death: WorkerDiedError) -> None:
        _log.debug("%s", death.details)
        if self._deaths.died(idle=self._in_flight == 0):
            raise WorkerError(
                f"{death}; the worker has died {self._max_deaths} times in a row, each time within "
                f"{PROVEN_STEPS} steps or {PROVEN_S:.0f} s of service",
                death.details,
            ) from death
        _log.warning("%s; starting it again, requests go on", death)

    def _steps(self) -> None:
        frames, results = self._executor.buffers.frames, self._executor.buffers.results
        free, running = deque(range(len(frames))), deque[int]()
        while True:
            self._in_flight = len(running)
            if free:
                planned = self._handle.plan(frames[free[0]], _IDLE_S)
                if planned == Planned.Stopped:
                    return
                if planned == Planned.Step:
                    running.append(free.popleft())
                    self._in_flight = len(running)
                    self._executor.submit(running[-1])
                    continue
                if not running:
                    self._executor.check()
                    continue
            index = self._executor.wait()
            if index is None:
                return
            if index != running.popleft():
                raise WorkerError(f"the worker answered step {index} out of turn")
            self._handle.commit(results[index])
            self._deaths.step()
            free.append(index)
