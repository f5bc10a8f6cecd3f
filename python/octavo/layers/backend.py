"""Where and with what a model computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from octavo.ops import Ops


@dataclass(frozen=True)
class Backend:
    """Handed to every layer when it is built."""

    device: torch.device
    dtype: torch.dtype
    ops: Ops

    def empty(self, *shape: int) -> torch.Tensor:
        """An uninitialised weight."""
        return torch.empty(shape, dtype=self.dtype, device=self.device)
