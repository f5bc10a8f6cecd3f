"""The step frame and its result, seen from Python: a torch view of each column, made once.

The core computes the layout (`_core.frame_layout`); `docs/architecture.md` says what the columns mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

Column = tuple[str, str, int, "Sequence[int]"]
"""Name, type, offset in bytes, shape."""

MAGIC = int.from_bytes(b"OCTV", "big")
VERSION = 4

SAMPLE = 1
"""Bit of `row_flags`: sample after the row's last token."""
PROMPT_LOGPROBS = 2
"""Bit of `row_flags`: report log-probabilities of prompt tokens."""

_DTYPES = {"int32": torch.int32, "float32": torch.float32, "int64": torch.int64}


class _Columns:
    """Views over one buffer. The buffer must be writable and outlive the views; nothing is copied."""

    names: ClassVar[frozenset[str]]
    header: Tensor

    def __init__(self, buffer: memoryview, layout: Sequence[Column]) -> None:
        found = {name for name, *_ in layout}
        if found != self.names:
            raise ValueError(f"the layout has columns {sorted(found ^ self.names)} too many or too few")
        for name, dtype, offset, shape in layout:
            setattr(self, name, _view(buffer, _DTYPES[dtype], offset, shape))


def _view(buffer: memoryview, dtype: torch.dtype, offset: int, shape: Sequence[int]) -> Tensor:
    count = 1
    for size in shape:
        count *= size
    if count == 0:
        return torch.empty(tuple(shape), dtype=dtype)
    return torch.frombuffer(buffer, dtype=dtype, count=count, offset=offset).view(tuple(shape))


class Frame(_Columns):
    """A step's work, from core to worker."""

    freed_slot: Tensor
    new_slot: Tensor
    new_int: Tensor
    new_float: Tensor
    new_seed: Tensor
    heap: Tensor
    delta_group: Tensor
    delta_slot: Tensor
    delta_index: Tensor
    delta_block: Tensor
    save_block: Tensor
    save_slot: Tensor
    load_block: Tensor
    load_slot: Tensor
    row_slot: Tensor
    row_query_start: Tensor
    row_computed: Tensor
    row_flags: Tensor
    row_next_token: Tensor
    tokens: Tensor

    names = frozenset(__annotations__) | {"header"}


class StepResult(_Columns):
    """A step's outcome, from worker to core."""

    token: Tensor
    status: Tensor
    logprob: Tensor
    rank: Tensor
    top_id: Tensor
    top_logprob: Tensor
    prompt_logprob: Tensor
    prompt_rank: Tensor
    prompt_top_id: Tensor
    prompt_top_logprob: Tensor

    names = frozenset(__annotations__) | {"header"}
