"""Products with quantised weights in plain torch: decoded once, then float32 arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
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


def quantize(weight: Tensor, format_name: str) -> Blocks:
    """Rounds a float weight [out, in] to blocks of 32: Q8_0 (the greatest becomes 127) or Q4_1 (the least
    becomes 0, the greatest 15). ValueError for other formats, or rows that are not whole blocks.
    """
    if format_name not in _ENCODERS:
        raise ValueError(f"floats are quantised to {' or '.join(_ENCODERS)}, not {format_name}")
    columns = weight.shape[1]
    if columns % _BLOCK:
        raise ValueError(f"{format_name}: rows of {columns} weights are not blocks of {_BLOCK}")
    groups = weight.float().view(len(weight), -1, _BLOCK)
    fields = [field.contiguous().view(torch.uint8) for field in _ENCODERS[format_name](groups)]
    return Blocks(np.ascontiguousarray(torch.cat(fields, -1).flatten(1).cpu().numpy()), format_name)


_BLOCK = 32


def _scale(step: Tensor) -> tuple[Tensor, Tensor]:
    """The scale as 16 bits hold it, and what to multiply with to divide by it."""
    scale = step.half()
    return scale, torch.where(scale > 0, 1.0 / scale.float(), 0.0)


def _encode_q8_0(groups: Tensor) -> list[Tensor]:
    scale, inverse = _scale(groups.abs().amax(-1, keepdim=True) / 127.0)
    return [scale, (groups * inverse).round().clamp(-127, 127).to(torch.int8)]


def _encode_q4_1(groups: Tensor) -> list[Tensor]:
    least = groups.amin(-1, keepdim=True).half()
    scale, inverse = _scale((groups.amax(-1, keepdim=True) - least.float()) / 15.0)
    low, high = ((groups - least.float()) * inverse).round().clamp(0, 15).to(torch.uint8).chunk(2, -1)
    return [scale, least, low | high << 4]


_ENCODERS = {"Q8_0": _encode_q8_0, "Q4_1": _encode_q4_1}
