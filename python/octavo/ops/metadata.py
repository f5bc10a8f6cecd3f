"""What attention must know about the rows of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class AttentionMetadata:
    """The rows of one step. Row `r` computes tokens `query_start[r]..query_start[r + 1]`.

    Rows of one token come first: there are `num_decode_rows` of them. Arrays named `host_*` hold the same
    numbers as their tensors, for implementations that plan on the host.
    """

    query_start: Tensor
    """int32 [rows + 1], on the device."""
    seq_lens: Tensor
    """int32 [rows]: tokens of the sequence, those of this step included."""
    block_tables: Tensor
    """int32 [rows, max_blocks]; entries past the sequence's end are any valid block."""
    slot_mapping: Tensor
    """int64 [tokens]: `block * block_size + offset` where a token's key and value go."""
    host_query_start: NDArray[np.int32]
    host_seq_lens: NDArray[np.int32]
    num_decode_rows: int
    max_query_len: int
    max_seq_len: int
