"""Which cores compute: one thread on each, read from what Linux says of the machine.

Everything is read below a root folder, which is `/` but for tests. Where a file is missing (another system,
an old kernel), cores are taken to be alike and in one memory node.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.config.core_list import core_numbers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

_CPUS, _NODES = "sys/devices/system/cpu", "sys/devices/system/node"


@dataclass(frozen=True)
class Placement:
    """How many threads compute, and where."""

    threads: int
    cores: tuple[int, ...]
    """Of each thread, the caller's first; none where the system places them."""
    words: str
    """The same as a line for people."""


@dataclass(frozen=True)
class _Core:
    """What the system runs one thread on at a time: a hardware thread of a physical core."""

    number: int
    rank: int
    """Hardware threads of the same physical core that come before this one."""
    node: int
    capacity: int
    """Speed as a share of that of the machine's fastest, in 1024ths."""


def place_threads(
    bind: str | Sequence[int],
    threads: int | None,
    *,
    root: Path = Path("/"),
    allowed: Collection[int] | None = None,
) -> Placement:
    """Choose threads and cores.

    `bind` is "auto", "none" or the cores to take, in order; `threads` how many, None where that follows from
    the cores. `allowed` replaces the cores that this process may use. Raises ValueError that names the
    option, the core and the reason where a wish cannot be met.
    """
    usable = _usable_cores(root, _affinity() if allowed is None else set(allowed))
    if not isinstance(bind, str):
        return _as_listed(bind, threads, {core.number for core in usable}, root)
    physical = max(1, sum(core.rank == 0 for core in usable))
    quota = _quota(root)
    count = threads or min(physical, quota or physical)
    if bind == "none":
        return Placement(count, (), f"{_threads(count)}, where the system puts them (--cpu-bind none)")
    if quota is not None and quota < physical:
        # Which cores the others in that position take is not known: all would take the first.
        return Placement(
            count,
            (),
            f"{_threads(count)}, on no cores of their own: time for {quota} of {physical} is granted",
        )
    if not 1 < count <= len(usable):
        return Placement(count, (), f"{_threads(count)}, where the system puts them")
    chosen = _in_order(usable)[:count]
    return Placement(
        count, tuple(core.number for core in chosen), f"{_threads(count)}, {_where(chosen, usable)}"
    )


def _as_listed(cores: Sequence[int], threads: int | None, usable: set[int], root: Path) -> Placement:
    present = _listed(root, f"{_CPUS}/present")
    online = _listed(root, f"{_CPUS}/online")
    for core in cores:
        if core in usable:
            continue
        if present and core not in present:
            reason = f"this machine has cores {_ranges(present)}"
        elif online and core not in online:
            reason = "it is offline"
        else:
            reason = (
                f"this process may use cores {_ranges(usable)} only; see its affinity (taskset) or the "
                "cpuset of its container"
            )
        raise ValueError(f"cpu_bind: core {core} cannot be used: {reason}")
    if threads is not None and threads > len(cores):
        raise ValueError(
            f"cpu_bind names {len(cores)} cores and cpu_threads is {threads}; list a core for each thread, "
            "or leave cpu_threads out"
        )
    chosen = tuple(cores[:threads])
    return Placement(len(chosen), chosen, f"{_threads(len(chosen))}, on cores {_ranges(chosen)} (--cpu-bind)")


def _in_order(usable: Sequence[_Core]) -> list[_Core]:
    """Physical cores before their further hardware threads; those of the node with most of them first; fast
    ones before slow ones.
    """
    speed: dict[int, int] = {}
    for core in usable:
        speed[core.node] = speed.get(core.node, 0) + (core.capacity if core.rank == 0 else 0)
    return sorted(
        usable, key=lambda core: (core.rank, -speed[core.node], core.node, -core.capacity, core.number)
    )


def _usable_cores(root: Path, allowed: set[int]) -> list[_Core]:
    """Those that are online and allowed, ascending."""
    online = _listed(root, f"{_CPUS}/online")
    numbers = sorted(allowed & online if online else allowed)
    node_of = {
        number: int(folder.name.removeprefix("node"))
        for folder in (root / _NODES).glob("node[0-9]*")
        for number in _listed(folder, "cpulist")
    }
    cores, threads_seen = [], dict[int, int]()
    for number in numbers:
        folder = root / _CPUS / f"cpu{number}"
        siblings = _listed(folder, "topology/thread_siblings_list") or {number}
        physical = min(siblings)
        rank = threads_seen.get(physical, 0)
        threads_seen[physical] = rank + 1
        capacity = _read(folder / "cpu_capacity").strip()
        cores.append(
            _Core(number, rank, node_of.get(number, 0), int(capacity) if capacity.isdigit() else 1024)
        )
    return cores


def _quota(root: Path) -> int | None:
    """Whole processors that the control group's share of time amounts to; None where there is no limit."""
    groups = root / "sys/fs/cgroup"
    quota, _, period = _read(groups / "cpu.max").strip().partition(" ")
    if not period:
        quota = _read(groups / "cpu/cpu.cfs_quota_us").strip()
        period = _read(groups / "cpu/cpu.cfs_period_us").strip()
    if not (quota.isdigit() and period.isdigit() and int(period) > 0):
        return None
    return max(1, -(-int(quota) // int(period)))


def _affinity() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def _where(chosen: Sequence[_Core], usable: Sequence[_Core]) -> str:
    nodes = {core.node for core in usable}
    if len(nodes) == 1:
        return f"one on each of the cores {_ranges(core.number for core in chosen)}"
    parts = [
        f"{_ranges(core.number for core in cores)} of memory node {node}"
        for node, cores in groupby(chosen, key=lambda core: core.node)
    ]
    return f"one on each of the cores {', then '.join(parts)} (there are {len(nodes)} nodes)"


def _threads(count: int) -> str:
    return f"{count} threads compute" if count > 1 else "one thread computes"


def _ranges(numbers: Iterable[int]) -> str:
    """0, 1, 2, 8 -> 0-2,8."""
    ordered = sorted(numbers)
    runs = [
        [number for _, number in run]
        for _, run in groupby(enumerate(ordered), key=lambda pair: pair[1] - pair[0])
    ]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs) or "none"


def _listed(folder: Path, name: str) -> set[int]:
    """The numbers in a file; none where it is missing or empty."""
    try:
        return set(core_numbers(_read(folder / name)))
    except ValueError:
        return set()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
