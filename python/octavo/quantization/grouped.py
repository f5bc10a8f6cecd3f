"""Integers with a scale and a zero for each group of inputs: what GPTQ, AWQ and compressed-tensors store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from octavo.quantization.blocks import Blocks

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray
    from torch import Tensor

    from octavo.quantization.gguf import Bytes

BLOCK = 32


@dataclass(frozen=True)
class Grouped:
    """A weight [rows, columns]: `scale * (integer - zero)`."""

    integers: Bytes
    """uint8 [rows, columns], below 2 ** bits."""
    scales: NDArray[np.float32]
    """[rows, groups]."""
    zeros: NDArray[np.int32]
    """[rows, groups]."""
    bits: int
    """4 or 8."""
    group_of: NDArray[np.int32] | None = None
    """[columns]: the group of each column; None: groups are equal runs of columns."""

    def dequantize(self) -> Tensor:
        """float32 [rows, columns]."""
        columns, groups = self.integers.shape[1], self.group_of
        if groups is None:
            groups = np.arange(columns, dtype=np.int32) // (columns // self.scales.shape[1])
        steps = (self.integers - self.zeros[:, groups]).astype(np.float32)
        return torch.from_numpy(self.scales[:, groups] * steps)

    def to_blocks(self) -> Blocks:
        """The same weight in blocks of 32, columns sorted by group. Groups are of one size, a multiple of 32.

        Exact but for scales that 16 bits do not hold and, where zeros differ from the middle, for minima,
        which are rounded to 16 bits. ValueError where 8-bit integers have a zero other than the middle.
        """
        order = None if self.group_of is None else np.argsort(self.group_of, kind="stable")
        integers = self.integers if order is None else self.integers[:, order]
        rows, columns = integers.shape
        repeat = columns // BLOCK // self.scales.shape[1]
        scales = np.repeat(self.scales, repeat, axis=1)[..., None]
        groups = integers.reshape(rows, -1, BLOCK)
        middle = 1 << (self.bits - 1)
        centred = bool((self.zeros == middle).all())
        parts: list[NDArray[Any]] = [scales.astype(np.float16).view(np.uint8)]
        if self.bits == 8:
            if not centred:
                raise ValueError("integers of 8 bits with a zero of their own do not fit blocks")
            name = "Q8_0"
            parts.append(groups ^ np.uint8(0x80))
        else:
            name = "Q4_0" if centred else "Q4_1"
            if not centred:
                minima = -scales * np.repeat(self.zeros, repeat, axis=1)[..., None]
                parts.append(minima.astype(np.float16).view(np.uint8))
            parts.append(groups[..., : BLOCK // 2] | groups[..., BLOCK // 2 :] << np.uint8(4))
        data = np.concatenate(parts, axis=-1).reshape(rows, -1)
        return Blocks(data, name, None if order is None else order.astype(np.int64))


def unpack(words: NDArray[np.int32], bits: int) -> Bytes:
    """Integers of 4 or 8 bits along the last axis, lowest first: [..., n] -> [..., n * 32 / bits]."""
    data = np.ascontiguousarray(words).view(np.uint8)
    if bits == 8:
        return data
    return np.stack([data & np.uint8(15), data >> np.uint8(4)], axis=-1).reshape(*data.shape[:-1], -1)
