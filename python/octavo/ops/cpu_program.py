"""A model's forward pass on a CPU as one call into Rust.

The pass is run once on a few tokens while its kernel calls are kept; `rust/py/src/program.rs` makes a program
of them that runs on any number of tokens. Between two kernels there is then no Python, which for a small
model at batch 1 takes as long as the kernels do.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from octavo.ops import cpu, op_by_op
from octavo.ops.metadata import AttentionMetadata

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from octavo._core import CpuProgram
    from octavo.ops import Forward, ModelForward

_log = logging.getLogger("octavo")

# Two rows of one token and one of three: numbers of tokens and of rows that nothing else has.
_STARTS = np.array([0, 1, 2, 5], np.int32)


def record(forward: ModelForward, kv_caches: Sequence[Tensor], group_of_layer: Sequence[int]) -> Forward:
    """`forward` bound to its caches. Where it uses anything but kernels and views it stays as it is, which
    the log says. Block 0 of the caches is written.
    """
    try:
        return CpuForward(forward, kv_caches, group_of_layer)
    except ValueError as error:
        _log.info("the forward pass runs op by op: %s", error)
        return op_by_op(forward, kv_caches, group_of_layer)


class CpuForward:
    """A recorded pass."""

    def __init__(
        self, forward: ModelForward, kv_caches: Sequence[Tensor], group_of_layer: Sequence[int]
    ) -> None:
        """Raises ValueError, with the reason, where the pass cannot be recorded."""
        self._block_size = kv_caches[0].shape[3]
        # The first layer of each group that has any.
        self._layer_of_group = [group_of_layer.index(group) for group in sorted(set(group_of_layer))]
        # Weights and caches are known to the program by their addresses.
        self._held = forward, tuple(kv_caches)
        groups = {group: _example(self._block_size) for group in set(group_of_layer)}
        metadata = [groups[group] for group in group_of_layer]
        tokens, positions = torch.zeros(5, dtype=torch.int64), torch.tensor([0, 0, 0, 1, 2])
        with cpu.recording() as (kernels, made), _OnlyKernels():  # type: ignore[no-untyped-call]
            hidden = forward(tokens, positions, metadata, kv_caches)
            if not any(hidden is tensor for tensor in made) or not hidden.is_contiguous():
                raise ValueError("its result was not made by a kernel")
            self._width, self._dtype = hidden.shape[1], hidden.dtype
            self._program: CpuProgram = kernels.recorded(
                *self._inputs(tokens, positions, metadata),
                hidden.data_ptr(),
                [(tensor.data_ptr(), tensor.nbytes) for tensor in made],
            )

    def __len__(self) -> int:
        """Kernel calls of a pass."""
        return len(self._program)

    def __call__(self, tokens: Tensor, positions: Tensor, metadata: Sequence[AttentionMetadata]) -> Tensor:
        """Int64 [tokens] ids and positions, each layer's metadata -> hidden states [tokens, hidden]."""
        out = torch.empty((tokens.shape[0], self._width), dtype=self._dtype)
        self._program.run(*self._inputs(tokens, positions, metadata), out.data_ptr())
        return out

    def _inputs(
        self, tokens: Tensor, positions: Tensor, metadata: Sequence[AttentionMetadata]
    ) -> tuple[int, int, int, list[tuple[tuple[int, int, int, int, int], int]]]:
        count, of_groups = tokens.shape[0], [metadata[layer] for layer in self._layer_of_group]
        for each in (tokens, positions, *(group.slot_mapping for group in of_groups)):
            if each.dtype is not torch.int64 or each.shape != (count,) or not each.is_contiguous():
                raise ValueError(f"forward: {count} contiguous int64 ids, positions and slots are needed")
        groups = [
            (cpu.sequences(group, self._block_size), group.slot_mapping.data_ptr()) for group in of_groups
        ]
        return count, tokens.data_ptr(), positions.data_ptr(), groups


class _OnlyKernels(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses what torch would compute: a program would not have it."""

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        _types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if not (func.is_view or func is torch.ops.aten.empty.memory_format):
            raise ValueError(f"it uses {func}")
        return func(*args, **(kwargs or {}))


def _example(block_size: int) -> AttentionMetadata:
    """Five tokens of three sequences, all in block 0."""
    lens = np.diff(_STARTS)
    tokens, rows = int(_STARTS[-1]), len(lens)
    return AttentionMetadata(
        query_start=torch.from_numpy(_STARTS.copy()),
        seq_lens=torch.from_numpy(lens),
        block_tables=torch.zeros((rows, -(-int(lens.max()) // block_size)), dtype=torch.int32),
        slot_mapping=torch.zeros(tokens, dtype=torch.int64),
        host_query_start=_STARTS,
        host_seq_lens=lens,
        num_decode_rows=2,
        max_query_len=int(lens.max()),
        max_seq_len=int(lens.max()),
    )
