"""Products with fixed weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from octavo.layers.weights import LinearWeight

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from octavo.layers.backend import Backend
    from octavo.layers.weights import BlockSlot


class MergedLinear(nn.Module):
    """Several checkpoint projections of one input, computed as one product; outputs lie side by side."""

    def __init__(
        self, backend: Backend, in_features: int, parts: Mapping[str, int], *, bias: bool = False
    ) -> None:
        """`parts`: checkpoint name -> output features, in order."""
        super().__init__()
        self.weight = LinearWeight(backend, parts, in_features, bias=bias)

    def block_slots(self, name: str) -> Iterator[tuple[str, BlockSlot]]:
        """One slot a part; the layer's own name is not in checkpoints."""
        return self.weight.block_slots(name)

    def slots(self, name: str) -> Iterator[tuple[str, Tensor]]:
        """What has not come as blocks."""
        return self.weight.slots(name)

    def process_after_loading(self) -> None:
        """Packs the weight and binds the op."""
        self.weight.process_after_loading()

    def weight_bytes(self) -> int:
        """Bytes of weight and bias."""
        return self.weight.weight_bytes()

    def forward(self, x: Tensor) -> Tensor:
        """[tokens, in] -> [tokens, sum of parts]."""
        return self.weight.apply(x)


class Linear(MergedLinear):
    """A projection of its own: [tokens, in] -> [tokens, out]."""

    def __init__(self, backend: Backend, in_features: int, out_features: int, *, bias: bool = False) -> None:
        super().__init__(backend, in_features, {"": out_features}, bias=bias)
