"""Normalisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.layers.backend import Backend


class RMSNorm(nn.Module):
    """Root mean square normalisation over the last dimension."""

    def __init__(self, backend: Backend, features: int, eps: float) -> None:
        super().__init__()
        self._norm, self._add_norm = backend.ops.rms_norm, backend.ops.add_rms_norm
        self.eps = eps
        self.scale = backend.empty(features)

    def slots(self, name: str) -> Iterator[tuple[str, Tensor]]:
        """The scale."""
        yield f"{name}.weight", self.scale

    def process_after_loading(self) -> None:
        """Nothing to do."""

    def weight_bytes(self) -> int:
        """Bytes of the scale."""
        return self.scale.nbytes

    def forward(self, x: Tensor) -> Tensor:
        """[..., features] -> the same shape."""
        return self._norm(x, self.scale, self.eps)

    def add(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Adds `x` to `residual`, then normalises: (normed, sum)."""
        return self._add_norm(x, residual, self.scale, self.eps)


class OffsetRMSNorm(RMSNorm):
    """As above, where the checkpoint stores how far the scale is from one. The sum has more digits than half
    precision: it is kept in float32.
    """

    def __init__(self, backend: Backend, features: int, eps: float) -> None:
        super().__init__(backend, features, eps)
        self.scale = torch.empty(features, dtype=torch.float32, device=backend.device)

    def process_after_loading(self) -> None:
        """Adds the one."""
        self.scale.add_(1.0)
