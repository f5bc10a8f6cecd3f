"""How much KV memory there is, and the tensors it is made of."""

from __future__ import annotations

import mmap
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from octavo.executor.machine import available_memory_bytes

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.models import ModelConfig

_GIB = 1 << 30
_CPU_SHARE = 0.25
_CPU_MOST_BYTES = 4 * _GIB


@dataclass(frozen=True)
class KVShape:
    """Of one layer's cache: `[num_blocks, 2, kv_heads, block_size, head_dim]`."""

    layers: int
    kv_heads: int
    block_size: int
    head_dim: int
    dtype: torch.dtype

    @classmethod
    def of(cls, config: ModelConfig, block_size: int, dtype: torch.dtype) -> KVShape:
        """The shape that a model needs."""
        return cls(config.num_layers, config.num_kv_heads, block_size, config.head_dim, dtype)

    @property
    def bytes_per_block(self) -> int:
        """Of one block in all layers."""
        return self.layers * 2 * self.kv_heads * self.block_size * self.head_dim * self.dtype.itemsize


@dataclass(frozen=True)
class Budget:
    """Bytes for KV memory, and where the number comes from."""

    size_bytes: int
    reason: str
    exact: bool
    """The user asked for this size: a model that does not fit is an error, not a shorter context."""


def cpu_budget() -> Budget:
    """A modest share of the memory that is free now, after the weights are loaded."""
    available = available_memory_bytes()
    size = min(_CPU_MOST_BYTES, int(_CPU_SHARE * available))
    return Budget(size, f"a quarter of the {_size(available)} free, at most 4 GiB", exact=False)


def cuda_budget(device: torch.device, utilization: float, peak_bytes: int) -> Budget:
    """What the utilization leaves after weights and the `peak_bytes` of activations of the largest step."""
    free, total = torch.cuda.mem_get_info(device)
    used_by_others = total - free - torch.cuda.memory_reserved(device)
    size = int(total * utilization) - used_by_others - peak_bytes
    if size <= 0:
        raise ValueError(
            f"no memory is left for KV: {utilization:.0%} of the GPU's {_size(total)}, of which "
            f"weights and activations take {_size(peak_bytes)} and other programs "
            f"{_size(used_by_others)}; "
            "raise gpu_memory_utilization or lower max_num_batched_tokens"
        )
    reason = f"{utilization:.0%} of the GPU's memory after weights and activations (gpu_memory_utilization)"
    return Budget(size, reason, exact=False)


@dataclass(frozen=True)
class KVPlan:
    """How many blocks, how long a sequence may be, and why."""

    num_blocks: int
    max_model_len: int
    explanation: str


def plan(
    shape: KVShape, budget: Budget, model_limit: int, asked_len: int | None, max_num_seqs: int
) -> KVPlan:
    """Divides a budget into blocks.

    `asked_len`: the user's max_model_len; None means the model's own limit where that fits, -1 the longest
    that fits. Raises ValueError with the numbers when not even what was asked for fits.
    """
    size, block = budget.size_bytes, shape.block_size
    fits = size // shape.bytes_per_block
    if fits < 1:
        raise ValueError(
            f"{_size(size)} of KV memory ({budget.reason}) hold not one block of "
            f"{shape.bytes_per_block} bytes; raise kv_cache_memory_bytes"
        )
    length = model_limit if asked_len in (None, -1) else int(asked_len)
    needed = -(-length // block)
    if needed > fits and (asked_len is not None or budget.exact) and asked_len != -1:
        raise ValueError(
            f"a sequence of max_model_len = {length} tokens needs {_size(needed * shape.bytes_per_block)} "
            f"of KV memory, and there are {_size(size)} ({budget.reason}), enough "
            f"for {fits * block} tokens; "
            "lower max_model_len or raise kv_cache_memory_bytes"
        )
    shortened = needed > fits
    length = min(length, fits * block)
    blocks = fits if budget.exact else min(fits, max_num_seqs * -(-length // block))
    used = blocks * shape.bytes_per_block
    explanation = (
        f"KV memory: {_size(used)}, {blocks * block} tokens in {blocks} blocks "
        f"({budget.reason}); --kv-cache-memory-bytes changes it"
    )
    if shortened:
        explanation += f". It shortens the context from the model's {model_limit} to {length} tokens"
    return KVPlan(blocks, length, explanation)


def plan_override(shape: KVShape, num_blocks: int, length: int) -> KVPlan:
    """Exactly `num_blocks`."""
    used, tokens = num_blocks * shape.bytes_per_block, num_blocks * shape.block_size
    return KVPlan(
        num_blocks,
        length,
        f"KV memory: {_size(used)}, {tokens} tokens in {num_blocks} blocks (--num-gpu-blocks-override)",
    )


def allocate(shape: KVShape, num_blocks: int, device: torch.device) -> list[Tensor]:
    """One zeroed cache a layer. On a CPU pages are taken from the system when they are first written."""
    dims = (num_blocks, 2, shape.kv_heads, shape.block_size, shape.head_dim)
    if device.type != "cpu":
        return [torch.zeros(dims, dtype=shape.dtype, device=device) for _ in range(shape.layers)]
    # Private: shared memory would count against the limits of /dev/shm, and never has huge pages by default.
    size = num_blocks * shape.bytes_per_block
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError):
        raise ValueError(
            f"{_size(size)} of KV memory cannot be had, {_size(available_memory_bytes())} is available; "
            "lower kv_cache_memory_bytes or num_gpu_blocks_override"
        ) from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # A kernel that is built without them refuses.
        with suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    whole = torch.frombuffer(memory, dtype=shape.dtype)
    return list(whole.view(shape.layers, *dims).unbind(0))


def _size(count: int) -> str:
    """Bytes as a person reads them."""
    for unit, name in ((_GIB, "GiB"), (1 << 20, "MiB")):
        if count >= unit:
            return f"{count / unit:.2f} {name}"
    return f"{count / 1024:.1f} KiB"
