"""Workers that die again and again end the engine, however slow they are to load."""

from __future__ import annotations

import subprocess
import sys

import pytest

from octavo.executor.deaths import PROVEN_S, PROVEN_STEPS, Deaths

MAX_DEATHS = 3


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def lives(
    deaths: Deaths, clock: Clock, *, loads_s: float, serves_s: float, steps: int, idle: bool = False
) -> int:
    """Workers that live alike until it is too often; at most ten."""
    for count in range(1, 11):
        clock.now += loads_s
        deaths.in_service()
        clock.now += serves_s
        for _ in range(steps):
            deaths.step()
        if deaths.died(idle=idle):
            return count
    return 10


def test_a_request_that_kills_slow_workers_ends_the_engine() -> None:
    clock = Clock()
    assert lives(Deaths(MAX_DEATHS, clock), clock, loads_s=600, serves_s=1, steps=5) == MAX_DEATHS


def test_workers_that_hang_end_the_engine() -> None:
    clock = Clock()
    assert lives(Deaths(MAX_DEATHS, clock), clock, loads_s=5, serves_s=300, steps=1) == MAX_DEATHS


def test_workers_that_die_soon_after_many_quick_steps_end_the_engine() -> None:
    clock = Clock()
    assert (
        lives(Deaths(MAX_DEATHS, clock), clock, loads_s=40, serves_s=PROVEN_S / 2, steps=10 * PROVEN_STEPS)
        == MAX_DEATHS
    )


def test_workers_that_die_while_loading_end_the_engine() -> None:
    clock = Clock()
    deaths = Deaths(MAX_DEATHS, clock)
    deaths.in_service()
    for _ in range(PROVEN_STEPS):
        deaths.step()
    clock.now += PROVEN_S
    assert [deaths.died(idle=False) for _ in range(3)] == [False, False, True]


def test_idle_workers_that_are_killed_now_and_then_never_end_it() -> None:
    clock = Clock()
    assert lives(Deaths(MAX_DEATHS, clock), clock, loads_s=5, serves_s=PROVEN_S, steps=1, idle=True) == 10


def test_rare_deaths_never_end_it() -> None:
    clock = Clock()
    assert lives(Deaths(MAX_DEATHS, clock), clock, loads_s=5, serves_s=PROVEN_S, steps=PROVEN_STEPS) == 10


FEW_DESCRIPTORS = """
import os, resource, sys
from octavo.executor.errors import WorkerDiedError, WorkerError
from octavo.executor.process import ProcessExecutor
lowest = os.dup(0)
os.close(lowest)
resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + int(sys.argv[1]),) * 2)
try:
    ProcessExecutor({}, print, lambda: False)
except WorkerDiedError:
    print("died")
except WorkerError as error:
    print(error)
"""


@pytest.mark.parametrize("free", [0, 1, 4])
def test_a_worker_that_cannot_be_started_is_one_line(free: int) -> None:
    command = [sys.executable, "-c", FEW_DESCRIPTORS, str(free)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "a worker process cannot be started: Too many open files\n", done.stderr
