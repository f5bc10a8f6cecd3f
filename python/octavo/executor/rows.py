"""The worker's persistent rows: block tables and last tokens by slot, kept up to date by the frames'
differences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from octavo.executor.frame import PROMPT_LOGPROBS, SAMPLE
from octavo.ops import AttentionMetadata
from octavo.sampling import NewSlot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from octavo.executor.frame import Frame

    Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Step:
    """One frame, ready to compute. Arrays are on the host, tensors on the device."""

    number: int
    rows: int
    tokens: Tensor
    """int64 [tokens]."""
    positions: Tensor
    """int64 [tokens]."""
    metadata: tuple[AttentionMetadata, ...]
    """Of each layer."""
    sample_rows: NDArray[np.int64]
    """Rows that sample."""
    sample_slots: NDArray[np.int64]
    sample_positions: NDArray[np.int64]
    """Of the tokens to sample, counted from the start of the prompt."""
    sample_tokens: NDArray[np.int64]
    """Each row's last token of the step, whose hidden state gives its logits."""
    prompt_tokens: NDArray[np.int64]
    """Tokens of the step whose successors' log-probabilities are asked for."""
    prompt_targets: NDArray[np.int64]
    """Those successors."""


class Rows:
    """Block tables int32 [groups, slots, blocks] and last tokens int64 [slots], on the device."""

    def __init__(
        self,
        device: torch.device,
        slots: int,
        table_blocks: int,
        block_size: int,
        group_of_layer: Sequence[int] = (0,),
    ) -> None:
        self._device = device
        self._block_size = block_size
        self._group_of_layer = tuple(group_of_layer)
        shape = (max(group_of_layer) + 1, slots, table_blocks)
        self._blocks = torch.zeros(shape, dtype=torch.int32, device=device)
        self.last_token = torch.zeros(slots, dtype=torch.int64, device=device)

    def apply_deltas(self, frame: Frame, count: int) -> None:
        """Writes the frame's block table entries."""
        if count:
            columns = (frame.delta_group, frame.delta_slot, frame.delta_index)
            group, slot, index = (self._long(column[:count]) for column in columns)
            self._blocks[group, slot, index] = frame.delta_block[:count].to(self._device)

    def prepare(self, frame: Frame, number: int, rows: int, num_tokens: int) -> Step:
        """The inputs of the frame's `rows` rows with `num_tokens` tokens."""
        starts = frame.row_query_start.numpy()[: rows + 1].copy()
        computed = frame.row_computed.numpy()[:rows]
        slots = frame.row_slot.numpy()[:rows].astype(np.int64)
        lens = np.diff(starts)
        seq_lens = computed + lens
        max_seq_len = int(seq_lens.max())
        num_decode = int(np.count_nonzero(lens == 1))
        if num_decode == rows:
            positions, token_slot = computed, slots
        else:
            positions = np.arange(num_tokens) + np.repeat(computed - starts[:-1], lens)
            token_slot = np.repeat(slots, lens)
        block, offset = np.divmod(positions, self._block_size)
        host_tokens = frame.tokens.numpy()[:num_tokens]
        entry = token_slot * self._blocks.shape[2] + block
        # One transfer for all that is int64.
        wide = self._put(np.stack((positions, host_tokens, token_slot, entry, offset), dtype=np.int64))
        position, tokens, slot_of_token, entries, offsets = wide.unbind(0)
        if host_tokens.min() < 0:
            last = self.last_token.index_select(0, slot_of_token)
            tokens = torch.where(tokens < 0, last, tokens)
        flags = frame.row_flags.numpy()[:rows]
        sampling = np.flatnonzero(flags & SAMPLE)
        put_slots, put_starts, put_lens = self._put(slots), self._put(starts), self._put(seq_lens)

        def of_group(blocks: Tensor) -> AttentionMetadata:
            offset_blocks = blocks.view(-1).index_select(0, entries)
            return AttentionMetadata(
                query_start=put_starts,
                seq_lens=put_lens,
                block_tables=blocks[:, : -(-max_seq_len // self._block_size)].index_select(0, put_slots),
                slot_mapping=torch.add(offsets, offset_blocks, alpha=self._block_size),
                host_query_start=starts,
                host_seq_lens=seq_lens,
                num_decode_rows=num_decode,
                max_query_len=1 if num_decode == rows else int(lens.max()),
                max_seq_len=max_seq_len,
            )

        groups = {group: of_group(self._blocks[group]) for group in set(self._group_of_layer)}
        prompt_tokens, prompt_targets = _prompt_targets(frame, flags, starts)
        return Step(
            number=number,
            rows=rows,
            tokens=tokens,
            positions=position,
            metadata=tuple(groups[group] for group in self._group_of_layer),
            sample_rows=sampling,
            sample_slots=slots[sampling],
            sample_positions=seq_lens[sampling].astype(np.int64),
            sample_tokens=starts[1:][sampling].astype(np.int64) - 1,
            prompt_tokens=prompt_tokens,
            prompt_targets=prompt_targets,
        )

    def _long(self, column: Tensor) -> Tensor:
        return column.long().to(self._device)

    def _put(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self._device, non_blocking=True)


def _prompt_targets(frame: Frame, flags: Ints, starts: Ints) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    rows = np.flatnonzero(flags & PROMPT_LOGPROBS)
    if not len(rows):
        return rows, rows
    lens = np.diff(starts)
    wanted = np.repeat(flags & PROMPT_LOGPROBS, lens).astype(bool)
    targets = np.empty(len(wanted), np.int64)
    targets[:-1] = frame.tokens.numpy()[1 : len(wanted)]
    targets[starts[1:] - 1] = frame.row_next_token.numpy()[: len(flags)]
    tokens = np.flatnonzero(wanted & (targets >= 0))
    return tokens, targets[tokens]


def blank_prefill(tokens: int, block_size: int, device: torch.device) -> AttentionMetadata:
    """One prompt of `tokens` tokens that all lie in block 0, to measure memory with."""
    starts, lens = np.array([0, tokens], np.int32), np.array([tokens], np.int32)
    return AttentionMetadata(
        query_start=torch.from_numpy(starts).to(device),
        seq_lens=torch.from_numpy(lens).to(device),
        block_tables=torch.zeros((1, -(-tokens // block_size)), dtype=torch.int32, device=device),
        slot_mapping=torch.zeros(tokens, dtype=torch.int64, device=device),
        host_query_start=starts,
        host_seq_lens=lens,
        num_decode_rows=0,
        max_query_len=tokens,
        max_seq_len=tokens,
    )


def new_slots(frame: Frame, count: int) -> Iterator[NewSlot]:
    """The frame's `count` new slots, as the sampler takes them."""
    ints, floats = frame.new_int.numpy()[:count].tolist(), frame.new_float.numpy()[:count].tolist()
    slots, seeds = frame.new_slot.numpy()[:count].tolist(), frame.new_seed.numpy()[:count].tolist()
    heap = frame.heap.numpy()
    for slot, seed, numbers, reals in zip(slots, seeds, ints, floats, strict=True):
        (
            prompt_len,
            top_k,
            logprobs,
            _,
            min_tokens,
            history,
            history_len,
            suppress,
            suppress_len,
            bias,
            bias_len,
            _,
        ) = numbers
        temperature, top_p, min_p, presence, frequency, repetition = reals
        yield NewSlot(
            slot=slot,
            prompt_len=prompt_len,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            presence=presence,
            frequency=frequency,
            repetition=repetition,
            seed=seed,
            logprobs=logprobs,
            min_tokens=min_tokens,
            history=heap[history : history + history_len].copy(),
            suppress=heap[suppress : suppress + suppress_len].copy(),
            bias_ids=heap[bias : bias + bias_len].copy(),
            bias_values=heap[bias + bias_len : bias + 2 * bias_len].view(np.float32).copy(),
        )
