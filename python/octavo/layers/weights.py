"""How checkpoint tensors find their place in a model.

A layer with weights implements `slots(name)`: for each float tensor that it takes from the checkpoint, the
tensor's name relative to the layer's parent and the view of memory to fill. A merged layer has several slots
in one weight. A sharded layer would offer slots that narrow the checkpoint tensor first; the loader need not
know.

A layer that can compute with quantised blocks also implements `block_slots(name)`. What was given as blocks
there is no longer asked for in `slots`, so blocks come first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor, nn

    from octavo.layers.backend import Backend
    from octavo.quantization.blocks import Blocks


@runtime_checkable
class HasWeights(Protocol):
    """A layer that is filled from a checkpoint."""

    def slots(self, name: str) -> Iterator[tuple[str, Tensor]]:
        """Checkpoint tensors of a layer that its parent calls `name`."""

    def process_after_loading(self) -> None:
        """Called once when the weights are there: choose the op, repack, drop what is no longer needed."""

    def weight_bytes(self) -> int:
        """Bytes of the weights that the layer owns."""


@dataclass(frozen=True)
class BlockSlot:
    """A place for a tensor that may come as blocks."""

    shape: tuple[int, int]
    """(rows, columns)."""
    float_bytes: int
    """What it takes as floats."""
    take: Callable[[Blocks], None]
    """Takes blocks of this shape."""


@runtime_checkable
class TakesBlocks(Protocol):
    """A layer whose weights may stay quantised."""

    def block_slots(self, name: str) -> Iterator[tuple[str, BlockSlot]]:
        """Tensors of a layer that its parent calls `name` for which it takes blocks."""


class LinearWeight:
    """A weight [out, in] of one or several checkpoint tensors, with an optional bias [out]. Each tensor comes
    as floats or as blocks.
    """

    def __init__(self, backend: Backend, parts: Mapping[str, int], in_features: int, *, bias: bool) -> None:
        """`parts`: checkpoint name -> output features, in order."""
        self._backend, self._rows, self._columns = backend, dict(parts), in_features
        self._blocks: dict[str, Blocks] = {}
        self._floats: dict[str, Tensor] = {}
        self.bias = backend.empty(sum(parts.values())) if bias else None
        self._packed_bytes: int | None = None

    def block_slots(self, name: str) -> Iterator[tuple[str, BlockSlot]]:
        """Each part, called `name` in the checkpoint where it has no name of its own."""
        for part, rows in self._rows.items():
            take = partial(self._blocks.__setitem__, part)
            size = rows * self._columns * self._backend.dtype.itemsize
            yield f"{part or name}.weight", BlockSlot((rows, self._columns), size, take)

    def slots(self, name: str) -> Iterator[tuple[str, Tensor]]:
        """The parts that have not come as blocks, and biases."""
        self._make_room()
        start = 0
        for part, rows in self._rows.items():
            if part in self._floats:
                yield f"{part or name}.weight", self._floats[part]
            if self.bias is not None:
                yield f"{part or name}.bias", self.bias[start : start + rows]
            start += rows

    def process_after_loading(self) -> None:
        """Packs the weight for this machine; `apply` works from here on."""
        if self._packed_bytes is not None:
            raise RuntimeError("weights were already packed")
        self._packed_bytes = self.weight_bytes()
        if self._blocks:
            parts = [self._blocks.get(part, self._floats.get(part)) for part in self._rows]
            packed = self._backend.ops.pack_quantized_linear([p for p in parts if p is not None], self.bias)
            self._packed_bytes = packed.size_bytes
            self.apply: Callable[[Tensor], Tensor] = packed
        else:
            self.apply = self._backend.ops.pack_linear(self._whole, self.bias)
            del self._whole
        self._blocks, self._floats = {}, {}

    def weight_bytes(self) -> int:
        """Bytes of floats before packing, of blocks after it."""
        if self._packed_bytes is not None:
            return self._packed_bytes
        columns, size = self._columns, self._backend.dtype.itemsize
        floats = sum(rows * columns * size for part, rows in self._rows.items() if part not in self._blocks)
        blocks = sum(blocks.data.nbytes for blocks in self._blocks.values())
        return floats + blocks + (0 if self.bias is None else self.bias.nbytes)

    def _make_room(self) -> None:
        """One memory for all parts where all are floats: the product is one then."""
        if self._floats or self._packed_bytes is not None:
            return
        if self._blocks:
            wanted = {part: rows for part, rows in self._rows.items() if part not in self._blocks}
            self._floats = {part: self._backend.empty(rows, self._columns) for part, rows in wanted.items()}
        else:
            self._whole = self._backend.empty(sum(self._rows.values()), self._columns)
            views = torch.split(self._whole, list(self._rows.values()))
            self._floats = dict(zip(self._rows, views, strict=True))


def block_slots(model: nn.Module) -> dict[str, BlockSlot]:
    """Checkpoint name -> place, for all weights of a model that may come as blocks."""
    return {
        _full_name(path, slot): place
        for path, module in model.named_modules()
        if isinstance(module, TakesBlocks)
        for slot, place in module.block_slots(path.rpartition(".")[2])
    }


def checkpoint_slots(model: nn.Module) -> dict[str, Tensor]:
    """Checkpoint name -> memory to fill, for all layers of a model."""
    return {
        _full_name(path, slot): view
        for path, layer in _layers(model)
        for slot, view in layer.slots(path.rpartition(".")[2])
    }


def finish_loading(model: nn.Module) -> None:
    """Tells every layer that its weights are there."""
    for _, layer in _layers(model):
        layer.process_after_loading()


def weight_bytes(model: nn.Module) -> int:
    """Bytes of all weights."""
    return sum(layer.weight_bytes() for _, layer in _layers(model))


def _full_name(path: str, slot: str) -> str:
    parent = path.rpartition(".")[0]
    return f"{parent}.{slot}" if parent else slot


def _layers(model: nn.Module) -> Iterator[tuple[str, HasWeights]]:
    for path, module in model.named_modules():
        if isinstance(module, HasWeights):
            yield path, module
