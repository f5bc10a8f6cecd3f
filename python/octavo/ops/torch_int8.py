"""Products of 8-bit weights and 8-bit rows (W8A8) in plain torch: the slow and obvious reference."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

_MOST = 127.0


def to_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rounds the last dimension to bytes with the scale that makes its greatest absolute value 127.

    [..., n] -> int8 [..., n], float32 [..., 1], whose product is near `x`: within half a scale. What is not
    finite makes the scale NaN.
    """
    wide = x.float()
    greatest = wide.abs().amax(-1, keepdim=True)
    # Divided as tensors: a number over a tensor is rounded twice, as a reciprocal. Of nothing, or less than
    # floats can divide by, the factor is infinite.
    most = torch.full_like(greatest, _MOST)
    factor = most / greatest
    usable = factor.isfinite() & greatest.isfinite()
    integers = (wide * torch.where(usable, factor, 0.0)).nan_to_num(0.0).round().to(torch.int8)
    scale = torch.where(factor.isinf(), 0.0, greatest / most)
    return integers, torch.where(greatest.isfinite(), scale, torch.nan)


def int8_linear(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """`to_int8(x) @ weight.T * scales + bias`: [tokens, in], int8 [out, in], float32 [out], [out] -> [tokens,
    out] of `x`'s type. The sum of products is an exact integer; the rest is float32.
    """
    integers, row_scale = to_int8(x)
    # Exact: the integers' products and sums are far below 2^53.
    sums = (integers.double() @ weight.double().T).float()
    # One rounding for product and sum, as a fused multiply-add has.
    y = sums.double() * (row_scale * scale.float()).double()
    if bias is not None:
        y = y + bias.double()
    return y.float().to(x.dtype)


def pack_int8_linear(weight: Tensor, scale: Tensor, bias: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """Prepares a product with fixed 8-bit weights, once at load. Returns `x -> int8_linear(x, ..)`."""
    return partial(int8_linear, weight=weight, scale=scale, bias=bias)
