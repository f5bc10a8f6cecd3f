"""Random weights, for benchmarks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from octavo.loader.checkpoint import Progress


def fill_dummy(slots: Mapping[str, Tensor], seed: int, progress: Progress) -> None:
    """Fills matrices with small seeded noise, norms with ones and biases with zeros."""
    generator = torch.Generator().manual_seed(seed)
    total = sum(slot.nbytes for slot in slots.values())
    done = 0
    for name, slot in slots.items():
        if slot.dim() > 1:
            noise = torch.empty(slot.shape, dtype=torch.float32).uniform_(-1.0, 1.0, generator=generator)
            slot.copy_(noise * (3.0 / slot.shape[-1]) ** 0.5)
        else:
            slot.fill_(0.0 if name.endswith(".bias") else 1.0)
        done += slot.nbytes
        progress("Making random weights", done, total)
