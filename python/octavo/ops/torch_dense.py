"""Dense ops in plain torch: the slow and obvious reference, on any device.

Arithmetic is float32 whatever the tensors' type. Inputs may have strided rows (a slice of a merged
projection); within a row they are contiguous. Results are contiguous.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812

if TYPE_CHECKING:
    from torch import Tensor

ROW_TILE = 4
"""Products are padded to a multiple of this many rows. MKL computes the rows left over from a tile of four
with another kernel, whose sums differ in the last bit; with whole tiles a row's result does not depend on the
others. Other libraries than MKL give no such promise: there the torch product is not batch invariant.
"""


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`x / rms(x) * weight` over the last dimension: [..., n], [n] -> [..., n]."""
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * weight.float()).to(x.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Adds `x` to `residual` and normalises the sum. Returns (normed, sum); may overwrite `residual`."""
    residual = residual.add_(x)
    return rms_norm(residual, weight, eps), residual


def rotary(
    positions: Tensor, q: Tensor, k: Tensor, cos_sin_cache: Tensor, *, interleaved: bool = False
) -> None:
    """Rotates the first `rotary_dim` values of every head in place.

    `positions` int64 [tokens]; `q`, `k` [tokens, heads, head_dim]; `cos_sin_cache` float32
    [max_position, rotary_dim]: cosines in the first half of a row, sines in the second. Pairs are (i, i +
    half), or (2 i, 2 i + 1) when `interleaved`.
    """
    cos, sin = cos_sin_cache[positions].unsqueeze(1).chunk(2, dim=-1)
    rotary_dim = cos_sin_cache.shape[-1]
    for x in (q, k):
        rotated = x[..., :rotary_dim]
        if interleaved:
            first, second = rotated[..., 0::2], rotated[..., 1::2]
        else:
            first, second = rotated.chunk(2, dim=-1)
        a, b = first.float(), second.float()
        turned = a * cos - b * sin, b * cos + a * sin
        first.copy_(turned[0])
        second.copy_(turned[1])


def silu_and_mul(x: Tensor) -> Tensor:
    """`silu(gate) * up` of a merged projection: [tokens, 2 n] (gate first) -> [tokens, n]."""
    gate, up = x.chunk(2, dim=-1)
    return (F.silu(gate.float()) * up.float()).to(x.dtype)


def gelu_and_mul(x: Tensor) -> Tensor:
    """The same with `gelu(gate)` in place of `silu(gate)`, by its approximation with tanh."""
    gate, up = x.chunk(2, dim=-1)
    return (F.gelu(gate.float(), approximate="tanh") * up.float()).to(x.dtype)


def embedding(tokens: Tensor, weight: Tensor) -> Tensor:
    """Rows of `weight` [vocab, n] for int `tokens` [tokens] -> [tokens, n]."""
    return F.embedding(tokens, weight)


def scale(x: Tensor, factor: float) -> Tensor:
    """Multiplies [tokens, n] by a number, in place."""
    return x.mul_(factor)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x @ weight.T + bias`: [tokens, in], [out, in], [out] -> [tokens, out]."""
    rows = x.shape[0]
    if x.device.type == "cpu" and rows % ROW_TILE:
        return F.linear(F.pad(x, (0, 0, 0, -rows % ROW_TILE)), weight, bias)[:rows]
    return F.linear(x, weight, bias)


class PackedLinear:
    """A product with a fixed weight; see `pack_linear`."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight, self._bias = weight, bias
        self.size_bytes = weight.nbytes + (0 if bias is None else bias.nbytes)

    def __call__(self, x: Tensor) -> Tensor:
        """[tokens, in] -> [tokens, out]."""
        return linear(x, self._weight, self._bias)

    def rows(self, tokens: Tensor, dtype: torch.dtype) -> Tensor:
        """Rows of the weight by int ids [tokens]: [tokens, in]."""
        return F.embedding(tokens, self._weight).to(dtype)


def pack_linear(weight: Tensor, bias: Tensor | None = None) -> PackedLinear:
    """Prepares a product with a fixed weight [out, in] and an optional bias [out], once at load.

    The result is callable on `x` [tokens, in]; `rows(tokens, dtype)`, with the weight's type, looks rows up
    as an embedding does; `size_bytes` says what is held.
    """
    return PackedLinear(weight, bias)
