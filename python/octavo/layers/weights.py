"""How checkpoint tensors find their place in a model.

A layer with weights implements `slots(name)`: for each checkpoint tensor that it takes, the tensor's name
relative to the layer's parent and the view of memory to fill. A merged layer has several slots in one weight.
A sharded layer would offer slots that narrow the checkpoint tensor first; the loader need not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

    from octavo.layers.backend import Backend


@runtime_checkable
class HasWeights(Protocol):
    """A layer that is filled from a checkpoint."""

    def slots(self, name: str) -> Iterator[tuple[str, Tensor]]:
        """Checkpoint tensors of a layer that its parent calls `name`."""

    def process_after_loading(self) -> None:
        """Called once when the weights are there: choose the op, repack, drop what is no longer needed."""

    def weight_bytes(self) -> int:
        """Bytes of the weights that the layer owns."""


class DenseWeight:
    """A float weight [out, in] with an optional bias [out]. Other formats (quantised blocks) have the same
    methods.
    """

    def __init__(self, backend: Backend, out_features: int, in_features: int, *, bias: bool) -> None:
        self._ops = backend.ops
        self.weight: Tensor | None = backend.empty(out_features, in_features)
        self.bias = backend.empty(out_features) if bias else None
        self._bytes = self.weight.nbytes + (self.bias.nbytes if self.bias is not None else 0)

    def slots(self, name: str, start: int, rows: int) -> Iterator[tuple[str, Tensor]]:
        """The slots of output rows `start..start + rows`, called `name` in the checkpoint."""
        if self.weight is None:
            raise RuntimeError("weights were already packed")
        yield f"{name}.weight", self.weight[start : start + rows]
        if self.bias is not None:
            yield f"{name}.bias", self.bias[start : start + rows]

    def process_after_loading(self) -> None:
        """Packs the weight for this machine; `apply` works from here on."""
        if self.weight is None:
            raise RuntimeError("weights were already packed")
        self.apply = self._ops.pack_linear(self.weight, self.bias)
        self.weight = None

    def weight_bytes(self) -> int:
        """Bytes before packing."""
        return self._bytes


def checkpoint_slots(model: nn.Module) -> dict[str, Tensor]:
    """Checkpoint name -> memory to fill, for all layers of a model."""
    slots: dict[str, Tensor] = {}
    for path, layer in _layers(model):
        parent, _, name = path.rpartition(".")
        prefix = f"{parent}." if parent else ""
        for slot, view in layer.slots(name):
            slots[prefix + slot] = view
    return slots


def finish_loading(model: nn.Module) -> None:
    """Tells every layer that its weights are there."""
    for _, layer in _layers(model):
        layer.process_after_loading()


def weight_bytes(model: nn.Module) -> int:
    """Bytes of all weights."""
    return sum(layer.weight_bytes() for _, layer in _layers(model))


def _layers(model: nn.Module) -> Iterator[tuple[str, HasWeights]]:
    for path, module in model.named_modules():
        if isinstance(module, HasWeights):
            yield path, module
