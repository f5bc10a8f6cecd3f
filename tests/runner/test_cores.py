"""Threads and cores on machines of many kinds, from trees of files as Linux shows them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from octavo import _core
from octavo.executor.cores import place_threads

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Machine:
    """What /sys says: hardware threads by physical core, cores by node."""

    siblings: list[tuple[int, ...]]
    nodes: dict[int, str] = field(default_factory=dict)
    capacity: dict[int, int] = field(default_factory=dict)
    offline: tuple[int, ...] = ()
    files: dict[str, str] = field(default_factory=dict)

    def write(self, root: Path) -> None:
        cpus = root / "sys/devices/system/cpu"
        present = sorted(number for core in self.siblings for number in core)
        online = [number for number in present if number not in self.offline]
        found = {cpus / "present": present, cpus / "online": online}
        for core in self.siblings:
            awake = [number for number in core if number not in self.offline]
            found |= {cpus / f"cpu{number}/topology/thread_siblings_list": awake for number in awake}
        texts = {path: ",".join(map(str, numbers)) for path, numbers in found.items()}
        texts |= {cpus / f"cpu{number}/cpu_capacity": str(speed) for number, speed in self.capacity.items()}
        texts |= {
            root / f"sys/devices/system/node/node{node}/cpulist": cores for node, cores in self.nodes.items()
        }
        texts |= {root / path: text for path, text in self.files.items()}
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")


# Two sockets of four cores with two threads each, numbered as servers usually are.
SERVER = Machine([(core, core + 8) for core in range(8)], nodes={0: "0-3,8-11", 1: "4-7,12-15"})
# Siblings side by side, as some laptops and virtual machines number them.
LAPTOP = Machine([(0, 1), (2, 3), (4, 5), (6, 7)], nodes={0: "0-7"})
PHONE = Machine([(core,) for core in range(8)], capacity={c: 1024 if c in (6, 7) else 400 for c in range(8)})
EVERY = range(16)


@pytest.mark.parametrize(
    ("machine", "allowed", "threads", "cores"),
    [
        (SERVER, EVERY, None, [0, 1, 2, 3, 4, 5, 6, 7]),
        (SERVER, EVERY, 3, [0, 1, 2]),
        (SERVER, EVERY, 10, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        # A container of node 1, and one that has more of it: that node comes first.
        (SERVER, [4, 5, 6, 7], None, [4, 5, 6, 7]),
        (SERVER, [3, 4, 5, 6, 12], None, [4, 5, 6, 3]),
        # Both threads of one core, and one of another.
        (SERVER, [2, 10, 11], None, [2, 11]),
        (LAPTOP, EVERY, None, [0, 2, 4, 6]),
        (LAPTOP, EVERY, 6, [0, 2, 4, 6, 1, 3]),
        (PHONE, EVERY, 4, [6, 7, 0, 1]),
        (PHONE, EVERY, None, [6, 7, 0, 1, 2, 3, 4, 5]),
        (Machine(LAPTOP.siblings, offline=(2, 4, 5)), EVERY, None, [0, 3, 6]),
    ],
)
def test_auto_takes_physical_cores_first_and_one_node_before_the_next(
    tmp_path: Path, machine: Machine, allowed: list[int], threads: int | None, cores: list[int]
) -> None:
    machine.write(tmp_path)
    placement = place_threads("auto", threads, root=tmp_path, allowed=allowed)
    assert list(placement.cores) == cores
    assert placement.threads == len(cores)


def test_nodes_are_named(tmp_path: Path) -> None:
    SERVER.write(tmp_path)
    words = place_threads("auto", 6, root=tmp_path, allowed=EVERY).words
    assert "0-3 of memory node 0, then 4-5 of memory node 1" in words


@pytest.mark.parametrize(
    "files",
    [
        {"sys/fs/cgroup/cpu.max": "250000 100000"},
        {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "300000", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"},
    ],
)
def test_a_containers_time_limits_threads_and_binds_none(tmp_path: Path, files: dict[str, str]) -> None:
    Machine(SERVER.siblings, files=files).write(tmp_path)
    placement = place_threads("auto", None, root=tmp_path, allowed=EVERY)
    assert (placement.threads, placement.cores) == (3, ())


def test_no_limit_is_none(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/cpu.max": "max 100000", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1"}
    Machine(LAPTOP.siblings, files=files).write(tmp_path)
    assert place_threads("auto", None, root=tmp_path, allowed=EVERY).cores == (0, 2, 4, 6)


def test_more_threads_than_cores_are_left_to_the_system(tmp_path: Path) -> None:
    LAPTOP.write(tmp_path)
    placement = place_threads("auto", 9, root=tmp_path, allowed=EVERY)
    assert (placement.threads, placement.cores) == (9, ())


def test_none_binds_none(tmp_path: Path) -> None:
    LAPTOP.write(tmp_path)
    placement = place_threads("none", None, root=tmp_path, allowed=EVERY)
    assert (placement.threads, placement.cores) == (4, ())


def test_without_files_cores_are_alike(tmp_path: Path) -> None:
    assert place_threads("auto", None, root=tmp_path, allowed=[5, 7]).cores == (5, 7)


def test_a_list_is_taken_in_its_order(tmp_path: Path) -> None:
    SERVER.write(tmp_path)
    listed = [9, 1, 4]
    assert place_threads(listed, None, root=tmp_path, allowed=EVERY).cores == (9, 1, 4)
    assert place_threads(listed, 2, root=tmp_path, allowed=EVERY).cores == (9, 1)


@pytest.mark.parametrize(
    ("bind", "threads", "reason"),
    [
        ([0, 16], None, "core 16 cannot be used: this machine has cores 0-15"),
        ([0, 5], None, "core 5 cannot be used: it is offline"),
        ([0, 4], None, "core 4 cannot be used: this process may use cores 0-3 only"),
        ([0, 1], 3, "cpu_bind names 2 cores and cpu_threads is 3"),
    ],
)
def test_what_cannot_be_had_is_refused_with_the_reason(
    tmp_path: Path, bind: list[int], threads: int | None, reason: str
) -> None:
    Machine(SERVER.siblings, offline=(5,)).write(tmp_path)
    with pytest.raises(ValueError, match=reason):
        place_threads(bind, threads, root=tmp_path, allowed=range(4))


def test_threads_of_the_kernels_stay_on_their_cores() -> None:
    core = max(os.sched_getaffinity(0))
    before = set(os.listdir("/proc/self/task"))
    kernels = _core.CpuKernels(3, [0, core, core])
    started = [int(task) for task in set(os.listdir("/proc/self/task")) - before]
    assert len(started) == 2
    assert all(os.sched_getaffinity(task) == {core} for task in started)
    del kernels


def test_a_core_that_the_system_refuses_is_named() -> None:
    with pytest.raises(ValueError, match="cannot be kept on core 4000"):
        _core.CpuKernels(2, [0, 4000])
