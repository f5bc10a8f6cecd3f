"""Runs a model over paged KV memory in chunks, without a runner."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from octavo import ops
from octavo.layers import Backend, checkpoint_slots, finish_loading
from octavo.loader import fill, open_checkpoint
from octavo.models import ModelConfig, create_model
from octavo.ops import AttentionMetadata, op_by_op

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from octavo.models.decoder import CausalLM
    from octavo.ops import Forward, ModelForward

    Bind = Callable[[ModelForward, Sequence[Tensor], Sequence[int]], Forward]


def load(path: Path, max_model_len: int, dtype: torch.dtype = torch.float32) -> tuple[ModelConfig, CausalLM]:
    """A model from a folder or file, on the CPU."""
    device = torch.device("cpu")
    checkpoint = open_checkpoint(str(path))
    config = ModelConfig.from_hf(checkpoint.config)
    model = create_model(config, Backend(device, dtype, ops.select(device)), max_model_len)
    fill(checkpoint_slots(model), checkpoint, lambda *_: None)
    finish_loading(model)
    return config, model


def logits_in_chunks(
    config: ModelConfig,
    model: CausalLM,
    sequences: list[Tensor],
    chunks: list[int],
    block_size: int = 8,
    bind: Bind = op_by_op,
) -> list[Tensor]:
    """Logits at every token of each sequence, all sequences side by side, cut into chunks of the given
    sizes in turn; when those are used up, token by token. `bind` gives the forward pass its caches; every
    other layer is of a second group, with block tables of its own.
    """
    longest = max(len(sequence) for sequence in sequences)
    per_sequence = -(-longest // block_size)
    order = torch.randperm(per_sequence * len(sequences) + 5, generator=torch.Generator().manual_seed(1))
    tables = order[: per_sequence * len(sequences)].view(len(sequences), per_sequence)
    dtype = model.model.embed_tokens.table.dtype
    shape = (len(order), 2, config.num_kv_heads, block_size, config.head_dim)
    caches = [torch.zeros(shape, dtype=dtype) for _ in range(config.num_layers)]
    # As in a model whose layers all have windows, the first group has none.
    group_of_layer = [1 + layer % 2 for layer in range(config.num_layers)]
    forward = bind(model, caches, group_of_layer)
    done = [0] * len(sequences)
    outputs: list[list[Tensor]] = [[] for _ in sequences]
    sizes = iter(chunks)
    with torch.inference_mode():
        while any(d < len(s) for d, s in zip(done, sequences, strict=True)):
            size = next(sizes, 1)
            live = [row for row, sequence in enumerate(sequences) if done[row] < len(sequence)]
            takes = {row: min(size, len(sequences[row]) - done[row]) for row in live}
            live.sort(key=lambda row: takes[row] != 1)
            tokens, positions, metadata = _inputs(
                [sequences[row] for row in live],
                [tables[live], tables.flip(0)[live]],
                block_size,
                [done[row] for row in live],
                [takes[row] for row in live],
            )
            hidden = forward(tokens, positions, [metadata[group - 1] for group in group_of_layer])
            logits = model.logits(hidden).split([takes[row] for row in live])
            for row, part in zip(live, logits, strict=True):
                outputs[row].append(part)
                done[row] += takes[row]
    return [torch.cat(parts) for parts in outputs]


def _inputs(
    sequences: list[Tensor],
    tables: list[Tensor],
    block_size: int,
    computed: list[int],
    takes: list[int],
) -> tuple[Tensor, Tensor, list[AttentionMetadata]]:
    """Ids, positions and the metadata of each group."""
    spans = list(zip(sequences, computed, takes, strict=True))
    tokens = torch.cat([sequence[start : start + take] for sequence, start, take in spans])
    positions = torch.cat(
        [torch.arange(start, start + take) for start, take in zip(computed, takes, strict=True)]
    )
    row_of = torch.repeat_interleave(torch.arange(len(takes)), torch.tensor(takes))
    starts = np.concatenate(([0], np.cumsum(takes))).astype(np.int32)
    lens = np.array([start + take for start, take in zip(computed, takes, strict=True)], np.int32)
    metadata = [
        AttentionMetadata(
            query_start=torch.from_numpy(starts),
            seq_lens=torch.from_numpy(lens),
            block_tables=of_group.int(),
            slot_mapping=of_group[row_of, positions // block_size] * block_size + positions % block_size,
            host_query_start=starts,
            host_seq_lens=lens,
            num_decode_rows=takes.count(1),
            max_query_len=max(takes),
            max_seq_len=int(lens.max()),
        )
        for of_group in tables
    ]
    return tokens, positions, metadata
