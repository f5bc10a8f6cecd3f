"""Products with fixed weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from octavo.layers.weights import DenseWeight

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from octavo.layers.backend import Backend


class MergedLinear(nn.Module):
    """Several checkpoint projections of one input, computed as one product; outputs lie side by side."""

    def __init__(
        self, backend: Backend, in_features: int, parts: Mapping[str, int], *, bias: bool = False
    ) -> None:
        """`parts`: checkpoint name -> output features, in order."""
        super().__init__()
        self.parts = dict(parts)
        self.weight = DenseWeight(backend, sum(parts.values()), in_features, bias=bias)

    def slots(self, name: str) -> Iterator[tuple[str, Tensor]]:
        """One slot a part; the layer's own name is not in checkpoints."""
        start = 0
        for part, rows in self.parts.items():
            yield from self.weight.slots(part or name, start, rows)
            start += rows

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
