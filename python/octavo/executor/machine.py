"""What memory this machine has to give, within the limits of the container."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60
# Parameters of glibc's mallopt.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def available_memory_bytes() -> int:
    """Memory that can be taken without swapping."""
    return min(_system_available(), _cgroup_available())


def keep_freed_memory() -> None:
    """Have the allocator keep what a step frees for the next one.

    By default glibc maps each large tensor afresh, and the page faults cost as much as the arithmetic: a step
    of a tiny model with 256 rows of 49,152 logits took twice as long. Other allocators keep their own habits.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # not in musl
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


def _system_available() -> int:
    for line in _read(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _cgroup_available() -> int:
    """What is left of the control group's limit, page cache that can be dropped included."""
    for limit_file, usage_file, cache_key in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit, usage = _read(_CGROUP / limit_file).strip(), _read(_CGROUP / usage_file).strip()
        if limit.isdigit() and usage.isdigit() and int(limit) < _UNLIMITED:
            stat = _read((_CGROUP / limit_file).parent / "memory.stat")
            fields = dict(line.split() for line in stat.splitlines() if len(line.split()) == 2)
            return max(0, int(limit) - int(usage) + int(fields.get(cache_key, 0)))
    return _UNLIMITED


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
