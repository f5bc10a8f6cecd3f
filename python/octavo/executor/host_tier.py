"""Copies of KV blocks in host memory, which outlives the worker: the server process maps it too."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from octavo.executor.frame import Frame

_TRIES = 3


class CopyTimes(NamedTuple):
    """Of one step's copies, microseconds."""

    saves: int
    loads: int


class HostTier:
    """Slots `[slots, layers, 2, kv_heads, block_size, head_dim]` of the caches' dtype."""

    def __init__(self, memory: memoryview, slots: int, caches: Sequence[Tensor]) -> None:
        """`memory` has room for `slots` blocks of all layers' `caches`."""
        first = caches[0]
        self._caches, self._device = caches, first.device
        shape = (slots, len(caches), *first.shape[1:])
        self._slots = torch.frombuffer(memory, dtype=first.dtype).view(shape)
        if self._device.type == "cuda":
            # Pinned: the device copies at full speed and beside the processor.
            cudart: Any = torch.cuda.cudart  # untyped
            cudart().cudaHostRegister(self._slots.data_ptr(), self._slots.nbytes, 0)

    def apply(self, frame: Frame, saves: int, loads: int) -> CopyTimes:
        """Does a frame's copies: all saves, then all loads.

        The time of saves includes what the device has to do before it gets to them.
        """
        began = time.perf_counter_ns()
        if saves:
            blocks, slots = frame.save_block[:saves].long(), frame.save_slot[:saves].long()
            on_device = blocks.to(self._device)
            for layer, cache in enumerate(self._caches):
                self._slots[slots, layer] = cache.index_select(0, on_device).cpu()
        saved = time.perf_counter_ns()
        if loads:
            blocks, slots = frame.load_block[:loads].long(), frame.load_slot[:loads].long()
            on_device = blocks.to(self._device)
            for layer, cache in enumerate(self._caches):
                cache.index_copy_(0, on_device, self._slots[slots, layer].to(self._device))
        return CopyTimes((saved - began) // 1000, (time.perf_counter_ns() - saved) // 1000)


def load_cost_tokens(caches: Sequence[Tensor], compute: Callable[[], object], tokens: int) -> float:
    """What copying one block costs, in prompt tokens computed in the same time.

    `compute` computes a prompt of `tokens` tokens. Both are tried a few times and the fastest counts.
    """
    staging = [torch.zeros_like(cache[0], device="cpu") for cache in caches]

    def copy() -> None:
        for cache, stage in zip(caches, staging, strict=True):
            cache[0].copy_(stage)

    return tokens * _seconds(copy, caches[0].device) / _seconds(compute, caches[0].device)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    best = float("inf")
    for _ in range(_TRIES):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - start)
    return best
