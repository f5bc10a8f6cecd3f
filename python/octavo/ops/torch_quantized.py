"""Products with quantised weights in plain torch: decoded once, then float32 arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812

from octavo.ops.torch_dense import linear
from octavo.quantization.blocks import Blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


class QuantizedLinear:
    """A product with fixed weights; see `pack_quantized_linear`."""

    def __init__(self, parts: Sequence[Blocks | Tensor], bias: Tensor | None) -> None:
        decoded = [part.dequantize() if isinstance(part, Blocks) else part.float() for part in parts]
        self._weight = torch.cat(decoded)
        self._bias = None if bias is None else bias.float()
        self.size_bytes = self._weight.nbytes + (0 if self._bias is None else self._bias.nbytes)

    def __call__(self, x: Tensor) -> Tensor:
        """[tokens, in] -> [tokens, out], of `x`'s type."""
        return linear(x.float(), self._weight, self._bias).to(x.dtype)

    def rows(self, tokens: Tensor, dtype: torch.dtype) -> Tensor:
        """Rows of the weight by int ids [tokens]: [tokens, in]."""
        return F.embedding(tokens, self._weight).to(dtype)


def pack_quantized_linear(parts: Sequence[Blocks | Tensor], bias: Tensor | None = None) -> QuantizedLinear:
    """Prepares a product whose output features are those of all `parts` ([out, in] each) side by side, with
    an optional `bias` [sum of out].

    Implementations may round `x` to 8 bits for each 32 of a row (a symmetric scale: the greatest is 127). The
    result is callable on `x` [tokens, in]; `rows(tokens, dtype)` looks rows up as an embedding does;
    `size_bytes` says what is held.
    """
    return QuantizedLinear(parts, bias)
