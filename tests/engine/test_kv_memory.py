"""KV memory on a CPU is the process's own, and taken when it is first used."""

from __future__ import annotations

from pathlib import Path

import torch

from octavo.executor.kv_cache import KVShape, allocate


def resident_kib(kind: str) -> int:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status[kind].split()[0])


def test_memory_is_private_and_taken_late() -> None:
    shape = KVShape(layers=2, kv_heads=4, block_size=16, head_dim=64, dtype=torch.float32)
    size_kib = 64 << 10
    shared, own = resident_kib("RssShmem"), resident_kib("RssAnon")
    caches = allocate(shape, (size_kib << 10) // shape.bytes_per_block, torch.device("cpu"))
    assert resident_kib("RssAnon") - own < size_kib // 2
    for cache in caches:
        assert not cache[-1].any()
        cache.fill_(1)
    assert resident_kib("RssAnon") - own > size_kib // 2
    assert resident_kib("RssShmem") - shared < size_kib // 2
