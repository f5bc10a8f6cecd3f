"""Which tokens a request has seen, kept only for slots whose penalties ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


class TokensSeen:
    """A dense row over the vocabulary for each slot that needs one; memory grows with the most in use at
    once.
    """

    def __init__(self, device: torch.device, vocab_size: int, slots: int) -> None:
        self._device = device
        self._vocab = vocab_size
        self._row_of = np.full(slots, -1, np.int64)
        self._free: list[int] = []
        self.in_prompt = torch.zeros((0, vocab_size), dtype=torch.bool, device=device)
        self.output_count = torch.zeros((0, vocab_size), dtype=torch.int32, device=device)

    def add(self, slot: int, tokens: NDArray[np.int32], prompt_len: int) -> None:
        """Begins a slot that has seen `tokens`; those from `prompt_len` on are output."""
        if not self._free:
            self._grow()
        row = self._free.pop()
        self._row_of[slot] = row
        counts = np.bincount(tokens[prompt_len:], minlength=self._vocab).astype(np.int32)
        self.output_count[row] = torch.from_numpy(counts).to(self._device)
        self.in_prompt[row] = False
        self.in_prompt[row, torch.from_numpy(tokens[:prompt_len].astype(np.int64)).to(self._device)] = True

    def free(self, slots: NDArray[Any]) -> None:
        """Forgets slots; those that have no row are passed over."""
        rows = self._row_of[slots]
        self._free.extend(rows[rows >= 0].tolist())
        self._row_of[slots] = -1

    def rows(self, slots: NDArray[Any]) -> Tensor:
        """Rows of `in_prompt` and `output_count`, int64, for slots that were added."""
        return torch.from_numpy(self._row_of[slots]).to(self._device)

    def count(self, rows: Tensor, tokens: Tensor) -> None:
        """Counts one output token in each of some distinct rows."""
        self.output_count[rows, tokens] += 1

    def _grow(self) -> None:
        old = len(self.in_prompt)
        added = max(4, old)
        for name in ("in_prompt", "output_count"):
            tensor = getattr(self, name)
            setattr(self, name, torch.cat((tensor, tensor.new_zeros((added, self._vocab)))))
        self._free.extend(range(old, old + added))
