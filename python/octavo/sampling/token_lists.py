"""Short lists of tokens by slot, as padded rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class TokenLists:
    """For each slot, ids and a number for each; the width grows to the longest list seen."""

    def __init__(self, device: torch.device, slots: int) -> None:
        self.ids = torch.zeros((slots, 0), dtype=torch.int64, device=device)
        self.values = torch.zeros((slots, 0), dtype=torch.float32, device=device)

    def put(self, slot: int, ids: NDArray[np.int32], values: NDArray[np.float32] | None = None) -> None:
        """Sets a slot's list, at least one id. Padding repeats the first id, with the number 0."""
        width = len(ids)
        if width > self.ids.shape[1]:
            added = max(width, 2 * self.ids.shape[1]) - self.ids.shape[1]
            self.ids = (
                torch.cat((self.ids, self.ids[:, :1].expand(-1, added)), 1)
                if self.ids.shape[1]
                else (self.ids.new_zeros((len(self.ids), added)))
            )
            self.values = torch.nn.functional.pad(self.values, (0, added))
        self.ids[slot] = int(ids[0])
        self.ids[slot, :width] = torch.from_numpy(ids.astype("int64")).to(self.ids.device)
        self.values[slot] = 0.0
        if values is not None:
            self.values[slot, :width] = torch.from_numpy(values.copy()).to(self.ids.device)

    def add_to(self, logits: Tensor, rows: Tensor, slots: Tensor) -> None:
        """Adds the numbers of `slots` [n] to `rows` [n] of the logits, in place."""
        logits.index_put_((rows.unsqueeze(1), self.ids[slots]), self.values[slots], accumulate=True)

    def forbid_in(self, logits: Tensor, rows: Tensor, slots: Tensor) -> None:
        """Makes the tokens of `slots` [n] impossible in `rows` [n] of the logits, in place."""
        logits[rows.unsqueeze(1), self.ids[slots]] = float("-inf")
