"""How much KV memory there is, and the tensors it is made of.

Layers that keep the same of a sequence are a group with blocks of its own. Group 0, the spine, is that of the
layers that keep everything; it is there even where no layer does, and then its blocks have no bytes.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from octavo.executor.machine import available_memory_bytes
from octavo.ops.torch_attention import kv_row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from octavo.boundary import KVGroup
    from octavo.models import ModelConfig

_GIB = 1 << 30
_CPU_SHARE = 0.25
_CPU_MOST_BYTES = 4 * _GIB
_MOST_BLOCKS_WITHOUT_BYTES = 1 << 20
_USUAL_WINDOWS = 4
"""Sequences are taken to be so many windows long where memory is divided between groups."""


@dataclass(frozen=True)
class KVShape:
    """Of one layer's cache: `[num_blocks, 2, kv_heads, block_size, row]`."""

    layers: int
    kv_heads: int
    block_size: int
    head_dim: int
    dtype: torch.dtype

    @classmethod
    def of(
        cls, config: ModelConfig, block_size: int, dtype: torch.dtype, layers: int | None = None
    ) -> KVShape:
        """The shape that a model needs for all its layers, or for so many of them."""
        layers = config.num_layers if layers is None else layers
        return cls(layers, config.num_kv_heads, block_size, config.head_dim, dtype)

    @property
    def row(self) -> int:
        """Elements of one head's key or value: with int8 its scale too."""
        return kv_row(self.head_dim, self.dtype)

    @property
    def bytes_per_block(self) -> int:
        """Of one block in all layers."""
        return self.layers * 2 * self.kv_heads * self.block_size * self.row * self.dtype.itemsize


@dataclass(frozen=True)
class LayerGroup:
    """Layers whose blocks are handed out together."""

    window: int | None
    """Tokens that a token sees, itself included; None is all before it."""
    layers: tuple[int, ...]
    shape: KVShape

    def blocks_of(self, tokens: int) -> int:
        """The most blocks that a sequence of so many tokens needs between two steps."""
        block = self.shape.block_size
        whole = -(-tokens // block)
        return whole if self.window is None else min(whole, -(-(self.window - 1) // block) + 1)


def layer_groups(
    config: ModelConfig, block_size: int, dtype: torch.dtype, longest: int
) -> tuple[LayerGroup, ...]:
    """The groups of a model, the spine first. A window of `longest` tokens or more is none."""
    windows = [None if window is None or window >= longest else window for window in config.windows]
    groups = []
    for window in [None, *sorted({window for window in windows if window is not None})]:
        layers = tuple(layer for layer, own in enumerate(windows) if own == window)
        groups.append(LayerGroup(window, layers, KVShape.of(config, block_size, dtype, len(layers))))
    return tuple(groups)


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

    blocks: tuple[int, ...]
    """Of each group."""
    max_model_len: int
    explanation: str


@dataclass(frozen=True)
class Division:
    """How blocks are divided between groups."""

    groups: Sequence[LayerGroup]
    max_num_seqs: int
    max_num_batched_tokens: int

    @property
    def block_size(self) -> int:
        """Tokens of a block."""
        return self.groups[0].shape.block_size

    def blocks(self, spine: int, length: int) -> tuple[int, ...]:
        """Blocks of each group beside `spine` blocks of the spine, for sequences of up to `length` tokens."""
        return (spine, *(self._beside(group, spine, length) for group in self.groups[1:]))

    def _beside(self, group: LayerGroup, spine: int, length: int) -> int:
        """What sequences of the usual length need that fill the spine; enough for one sequence and a whole
        step, and no more than all sequences can use.
        """
        step = -(-self.max_num_batched_tokens // self.block_size)
        one = group.blocks_of(length)
        usual_len = min(length, _USUAL_WINDOWS * (group.window or length))
        usual = -(-spine * group.blocks_of(usual_len) // -(-usual_len // self.block_size))
        return max(1, min(spine, max(one + step, min(usual, self.max_num_seqs * one + step))))

    def bytes(self, spine: int, length: int) -> int:
        """What those blocks take."""
        counts = self.blocks(spine, length)
        return sum(
            count * group.shape.bytes_per_block for count, group in zip(counts, self.groups, strict=True)
        )

    def all_that_is_useful(self, length: int) -> int:
        """Blocks of the spine for as many sequences as there can be. Without bytes there are fewer: each
        still takes room in the core.
        """
        one = -(-length // self.block_size)
        every = self.max_num_seqs * one
        has_bytes = self.groups[0].shape.bytes_per_block > 0
        return every if has_bytes else max(one, min(every, _MOST_BLOCKS_WITHOUT_BYTES))

    def fits(self, size_bytes: int, length: int) -> int:
        """The most blocks of the spine whose division fits."""
        spine = self.groups[0].shape.bytes_per_block
        most = size_bytes // spine if spine else self.all_that_is_useful(length)
        return _largest(most, lambda count: self.bytes(count, length) <= size_bytes)


def _largest(most: int, holds: Callable[[int], bool]) -> int:
    """The largest number from 1 to `most` for which it holds, 0 if there is none; it holds for all below."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def plan(division: Division, budget: Budget, model_limit: int, asked_len: int | None) -> KVPlan:
    """Divides a budget into blocks.

    `asked_len`: the user's max_model_len; None means the model's own limit where that fits, -1 the longest
    that fits. Raises ValueError with the numbers when not even what was asked for fits.
    """
    size, block = budget.size_bytes, division.block_size
    length = model_limit if asked_len in (None, -1) else int(asked_len)
    fits = division.fits(size, length)
    if fits < 1:
        raise ValueError(
            f"{_size(size)} of KV memory ({budget.reason}) hold not one block of "
            f"{division.bytes(1, length)} bytes; raise kv_cache_memory_bytes"
        )
    needed = -(-length // block)
    if needed > fits and (asked_len is not None or budget.exact) and asked_len != -1:
        raise ValueError(
            f"a sequence of max_model_len = {length} tokens needs {_size(division.bytes(needed, length))} "
            f"of KV memory, and there are {_size(size)} ({budget.reason}), enough "
            f"for {fits * block} tokens; "
            "lower max_model_len or raise kv_cache_memory_bytes"
        )
    shortened = needed > fits
    length = min(length, fits * block)
    spine = fits if budget.exact else min(fits, division.all_that_is_useful(length))
    explanation = (
        f"KV memory: {_in_words(division, spine, length)} "
        f"({budget.reason}); --kv-cache-memory-bytes changes it"
    )
    if shortened:
        explanation += f". It shortens the context from the model's {model_limit} to {length} tokens"
    return KVPlan(division.blocks(spine, length), length, explanation)


def plan_override(division: Division, num_blocks: int, length: int) -> KVPlan:
    """Exactly `num_blocks` of the spine, and of other groups what goes with them."""
    words = _in_words(division, num_blocks, length)
    return KVPlan(
        division.blocks(num_blocks, length), length, f"KV memory: {words} (--num-gpu-blocks-override)"
    )


def _in_words(division: Division, spine: int, length: int) -> str:
    blocks = division.blocks(spine, length)
    words = f"{_size(division.bytes(spine, length))}, {spine * division.block_size} tokens in {spine} blocks"
    for group, count in zip(division.groups[1:], blocks[1:], strict=True):
        words += f", {count} blocks for layers with windows of {group.window} tokens"
    return words


def core_groups(groups: Sequence[LayerGroup], blocks: Sequence[int]) -> list[KVGroup]:
    """The groups beside the spine as the core wants them."""
    beside = zip(groups[1:], blocks[1:], strict=True)
    return [("last", group.window, count) for group, count in beside if group.window is not None]


def allocate_groups(
    groups: Sequence[LayerGroup], blocks: Sequence[int], device: torch.device
) -> list[Tensor]:
    """One zeroed cache a layer, of so many blocks as its group has."""
    by_layer: dict[int, Tensor] = {}
    for group, count in zip(groups, blocks, strict=True):
        if group.layers:
            by_layer.update(zip(group.layers, allocate(group.shape, count, device), strict=True))
    return [by_layer[layer] for layer in sorted(by_layer)]


def allocate(shape: KVShape, num_blocks: int, device: torch.device) -> list[Tensor]:
    """One zeroed cache a layer. On a CPU pages are taken from the system when they are first written."""
    dims = (num_blocks, 2, shape.kv_heads, shape.block_size, shape.row)
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
