"""Attention over paged KV memory in plain torch: the slow and obvious reference, on any device.

Sums run block by block in the order of the sequence, with products of fixed inner shape, so a token's result
depends neither on the other rows of the step nor on how the prompt was cut into chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812

from octavo.ops.torch_dense import ROW_TILE
from octavo.ops.torch_int8 import to_int8

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.ops.metadata import AttentionMetadata

_MAX_ELEMENTS = 1 << 24
"""Bound on the elements of a temporary."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """How scores are made."""

    scale: float
    window: int | None
    softcap: float | None


_SCALE_BYTES = 4


def kv_row(head_dim: int, dtype: torch.dtype) -> int:
    """Elements that a head's key or value takes in a cache: of int8, its bytes and a float32 that they are
    multiplied by.
    """
    return head_dim + _SCALE_BYTES if dtype == torch.int8 else head_dim


def write_kv(k: Tensor, v: Tensor, kv_cache: Tensor, slot_mapping: Tensor) -> None:
    """Stores keys and values [tokens, kv_heads, head_dim] at int64 `slot_mapping` [tokens] of a layer's cache
    [num_blocks, 2, kv_heads, block_size, kv_row(head_dim)].
    """
    block_size = kv_cache.shape[3]
    block, offset = slot_mapping // block_size, slot_mapping % block_size
    for index, x in enumerate((k, v)):
        kv_cache[block, index, :, offset] = _to_rows(x, kv_cache.dtype)


def _to_rows(x: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype != torch.int8:
        return x.to(dtype)
    integers, scale = to_int8(x)
    return torch.cat((integers, scale.view(torch.int8)), -1)


def _from_rows(rows: Tensor) -> Tensor:
    """Rows of a cache as float32 [..., head_dim]."""
    if rows.dtype != torch.int8:
        return rows.float()
    integers, scale = rows[..., :-_SCALE_BYTES], rows[..., -_SCALE_BYTES:].contiguous()
    return integers.float() * scale.view(torch.float32)


def paged_attention(
    q: Tensor,
    kv_cache: Tensor,
    metadata: AttentionMetadata,
    scale: float,
    *,
    window: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Causal attention of `q` [tokens, heads, head_dim] over the rows' blocks, this step's tokens already
    written.

    Query head h reads KV head `h // (heads // kv_heads)`. With `window` a token sees itself and the `window -
    1` tokens before it. With `softcap` scores become `softcap * tanh(score / softcap)`. Returns [tokens,
    heads, head_dim], of `q`'s type.
    """
    rule = _Rule(scale, window, softcap)
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    _decode_rows(out, q, kv_cache, metadata, rule)
    starts, lens = metadata.host_query_start, metadata.host_seq_lens
    for row in range(metadata.num_decode_rows, len(lens)):
        start, end = int(starts[row]), int(starts[row + 1])
        table = metadata.block_tables[row]
        first_position = int(lens[row]) - (end - start)
        out[start:end] = _prefill_row(q[start:end], kv_cache, table, first_position, rule).to(q.dtype)
    return out


def _decode_rows(
    out: Tensor,
    q: Tensor,
    kv_cache: Tensor,
    metadata: AttentionMetadata,
    rule: _Rule,
) -> None:
    rows = metadata.num_decode_rows
    if rows == 0:
        return
    _, _, kv_heads, block_size, head_dim = kv_cache.shape
    num_blocks = -(-int(metadata.host_seq_lens[:rows].max()) // block_size)
    step = max(1, _MAX_ELEMENTS // (2 * num_blocks * kv_heads * block_size * head_dim))
    for start in range(0, rows, step):
        part = slice(start, min(start + step, rows))
        blocks = _from_rows(kv_cache[metadata.block_tables[part, :num_blocks].long()])
        keys, values = blocks.unbind(2)
        last = metadata.seq_lens[part].long() - 1
        visible = _visible(last.view(-1, 1, 1, 1, 1), num_blocks, block_size, rule.window)
        grouped = _group_queries(q[part].unsqueeze(1), kv_heads)
        scores = torch.matmul(grouped.unsqueeze(1), keys.transpose(-1, -2))
        scores = _mask(scores, visible, rule)
        probs = torch.exp(scores - scores.amax((1, 4), keepdim=True))
        values = values.masked_fill(~visible.transpose(-1, -2), 0.0)
        sums, products = probs.sum(-1, keepdim=True), torch.matmul(probs, values)
        total, mixed = sums[:, 0], products[:, 0]
        for block in range(1, num_blocks):
            total = total + sums[:, block]
            mixed = mixed + products[:, block]
        out[part] = _ungroup(mixed / total, 1, q.shape[1]).squeeze(1).to(out.dtype)


def _prefill_row(
    q: Tensor,
    kv_cache: Tensor,
    table: Tensor,
    first_position: int,
    rule: _Rule,
) -> Tensor:
    tokens, heads, _ = q.shape
    step = max(1, _MAX_ELEMENTS // (heads * (first_position + tokens)))
    parts = [
        _prefill_tile(q[start : start + step], kv_cache, table, first_position + start, rule)
        for start in range(0, tokens, step)
    ]
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def _prefill_tile(
    q: Tensor,
    kv_cache: Tensor,
    table: Tensor,
    first_position: int,
    rule: _Rule,
) -> Tensor:
    tokens, heads, _ = q.shape
    _, _, kv_heads, block_size, _ = kv_cache.shape
    num_blocks = -(-(first_position + tokens) // block_size)
    first_block = 0 if rule.window is None else max(0, first_position - rule.window + 1) // block_size
    positions = torch.arange(first_position, first_position + tokens, device=q.device)
    grouped = _group_queries(q.unsqueeze(0), kv_heads).squeeze(0)
    rows = F.pad(positions.repeat(heads // kv_heads), (0, grouped.shape[1] - tokens * heads // kv_heads))
    visible = _visible(rows.view(1, 1, 1, -1, 1), num_blocks, block_size, rule.window)[0]
    keys, values = _from_rows(kv_cache[table[first_block:num_blocks].long()]).unbind(1)
    visible = visible[first_block:]
    scores = torch.stack([torch.matmul(grouped, key.transpose(-1, -2)) for key in keys])
    scores = _mask(scores, visible, rule)
    probs = torch.exp(scores - scores.amax((0, 3), keepdim=True))
    seen = torch.arange(first_block * block_size, num_blocks * block_size, device=q.device)
    unwritten = (seen >= first_position + tokens).view(-1, 1, block_size, 1)
    values = values.masked_fill(unwritten, 0.0)
    sums = probs.sum(-1, keepdim=True)
    total, mixed = sums[0], torch.matmul(probs[0], values[0])
    for block in range(1, len(values)):
        total = total + sums[block]
        mixed = mixed + torch.matmul(probs[block], values[block])
    return _ungroup((mixed / total).unsqueeze(0), tokens, heads).squeeze(0)


def _group_queries(q: Tensor, kv_heads: int) -> Tensor:
    """[rows, tokens, heads, dim] -> float32 [rows, kv_heads, heads / kv_heads * tokens (padded), dim]."""
    rows, tokens, heads, dim = q.shape
    group = heads // kv_heads
    grouped = q.float().reshape(rows, tokens, kv_heads, group, dim)
    grouped = grouped.permute(0, 2, 3, 1, 4).reshape(rows, kv_heads, group * tokens, dim)
    return F.pad(grouped, (0, 0, 0, -(group * tokens) % ROW_TILE))


def _ungroup(mixed: Tensor, tokens: int, heads: int) -> Tensor:
    """[rows, kv_heads, group * tokens (padded), dim] -> [rows, tokens, heads, dim]."""
    rows, kv_heads, _, dim = mixed.shape
    group = heads // kv_heads
    mixed = mixed[:, :, : group * tokens].reshape(rows, kv_heads, group, tokens, dim)
    return mixed.permute(0, 3, 1, 2, 4).reshape(rows, tokens, heads, dim)


def _visible(positions: Tensor, num_blocks: int, block_size: int, window: int | None) -> Tensor:
    """For query positions [rows, 1, 1, queries, 1]: which keys are seen, [rows, blocks, 1, queries,
    block_size].
    """
    keys = torch.arange(num_blocks * block_size, device=positions.device)
    keys = keys.view(1, num_blocks, 1, 1, block_size)
    visible = keys <= positions
    return visible if window is None else visible & (keys > positions - window)


def _mask(scores: Tensor, visible: Tensor, rule: _Rule) -> Tensor:
    scores = scores * rule.scale
    if rule.softcap is not None:
        scores = torch.tanh(scores / rule.softcap) * rule.softcap
    return scores.masked_fill(~visible, float("-inf"))
