"""What memory this machine has to give, within the limits of the container."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_CGROUP = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60
# Parameters of glibc's mallopt.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# Addresses, access, offset, device, inode, and the path of a file.
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ \d+ *(/.*)?")


def available_memory_bytes() -> int:
    """Memory that can be taken without swapping."""
    return min(_system_available(), _cgroup_available())


def keep_freed_memory() -> None:
    """Have the allocator give back what has been freed so far, and keep what a step frees for the next one.

    By default glibc maps each large tensor afresh, and the page faults cost as much as the arithmetic: a step
    of a tiny model with 256 rows of 49,152 logits took twice as long. Other allocators keep their own habits.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    mallopt = getattr(libc, "mallopt", None)  # not in musl
    if mallopt is not None:
        libc.malloc_trim(0)
        mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


def drop_start_up_pages() -> None:
    """Let go of what start-up read of program files; what is needed again comes back from the page cache.

    Of the 230 MB that importing a torch for CUDA reads, a model on a CPU needs a fifth.
    """
    libc = ctypes.CDLL(None)
    for start, size in _unchanged_file_pages(_read(Path("/proc/self/smaps"))):
        libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), mmap.MADV_DONTNEED)


def _unchanged_file_pages(maps: str) -> Iterator[tuple[int, int]]:
    """Address and size of each mapping of a file that can be read only and of which no page was written to
    before that: relocated addresses, say, are nowhere else.
    """
    region: tuple[int, int] | None = None
    for line in maps.splitlines():
        header = _MAPPING.match(line)
        if header is not None:
            start, end = int(header[1], 16), int(header[2], 16)
            region = (start, end - start) if header[3] in ("r-xp", "r--p") and header[4] else None
        elif region is not None and line.startswith("Anonymous:") and line.split()[1] == "0":
            yield region


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
