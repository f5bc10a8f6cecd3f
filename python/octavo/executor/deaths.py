"""When to stop replacing workers that die."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PROVEN_STEPS = 100
PROVEN_S = 60.0


class Deaths:
    """Counts workers in a row that died before they had proven themselves, by steps and by time in service.

    A request that kills each worker thus ends the engine, however long a worker takes to load or to hang. One
    that dies while it has nothing to do needs no steps to have proven itself.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`most`: deaths in a row that are once too often."""
        self._most = most
        self._clock = clock
        self._count = 0
        self._steps = 0
        self._in_service_since: float | None = None

    def in_service(self) -> None:
        """A worker has loaded and waits for its first step."""
        self._steps = 0
        self._in_service_since = self._clock()

    def step(self) -> None:
        """The worker has finished a step."""
        self._steps += 1

    def died(self, *, idle: bool) -> bool:
        """The worker has died, `idle` if it had nothing to do; True when that is once too often."""
        since = self._in_service_since
        served = since is not None and self._clock() - since >= PROVEN_S
        proven = served and (idle or self._steps >= PROVEN_STEPS)
        self._in_service_since = None
        self._count = 1 if proven else self._count + 1
        return self._count >= self._most
