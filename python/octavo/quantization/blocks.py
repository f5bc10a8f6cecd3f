"""Weights that stay quantised: rows of blocks, as files hold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from octavo.quantization.gguf import FORMATS, dequantize

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from octavo.quantization.gguf import Bytes

KERNEL_FORMATS = frozenset({"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"})
"""Formats that products are computed with as they are; weights of others are decoded when they are loaded."""


@dataclass(frozen=True)
class Blocks:
    """A weight [rows, columns]."""

    data: Bytes
    """uint8 [rows, bytes of a row], contiguous; it may be a file mapped into memory."""
    format: str
    """One of `KERNEL_FORMATS`."""
    order: NDArray[np.int64] | None = None
    """[columns]: the input that each column is for, where that is not its own place."""

    def __post_init__(self) -> None:
        layout = FORMATS[self.format]
        if not self.data.flags.c_contiguous or self.data.shape[1] % layout.block_bytes:
            raise ValueError(f"{self.data.shape} bytes are no contiguous rows of {self.format} blocks")

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) in weights."""
        rows, row_bytes = self.data.shape
        return rows, row_bytes // FORMATS[self.format].block_bytes * FORMATS[self.format].block_size

    def dequantize(self) -> Tensor:
        """float32 [rows, columns], columns in the order of inputs."""
        decoded = torch.from_numpy(dequantize(self.data, self.format))
        if self.order is None:
            return decoded
        out = torch.empty_like(decoded)
        out[:, torch.from_numpy(self.order)] = decoded
        return out


def block_bytes(format_name: str, rows: int, columns: int) -> int:
    """Bytes of a weight in a format; `columns` are whole blocks."""
    layout = FORMATS[format_name]
    return rows * (columns // layout.block_size) * layout.block_bytes
