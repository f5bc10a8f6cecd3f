"""Paged attention against float64 arithmetic on each sequence alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from octavo.ops import AttentionMetadata, Ops, cpu, torch_attention
from octavo.ops.torch_attention import kv_row

ERROR = {torch.float32: 3e-6, torch.bfloat16: 1.2e-2, torch.float16: 2e-3}


class Paged:
    """Sequences whose keys and values lie in random blocks; unused memory holds NaN."""

    def __init__(
        self,
        rows: list[tuple[int, int]],
        dtype: torch.dtype = torch.float32,
        heads: int = 6,
        kv_heads: int = 2,
        head_dim: int = 32,
        block_size: int = 16,
        seed: int = 0,
        cache_dtype: torch.dtype | None = None,
    ) -> None:
        """`rows`: (tokens of the sequence, tokens of this step)."""
        cache_dtype = cache_dtype or dtype
        self.rows = sorted(rows, key=lambda row: row[1] != 1)
        generator = torch.Generator().manual_seed(seed)
        self.seq_lens = [length for length, _ in self.rows]
        self.new = [new for _, new in self.rows]
        blocks = [-(-length // block_size) for length in self.seq_lens]
        order = torch.randperm(sum(blocks) + 3, generator=generator)
        self.tables = torch.zeros((len(rows), max(blocks)), dtype=torch.int32)
        shape = (len(order), 2, kv_heads, block_size, kv_row(head_dim, cache_dtype))
        if cache_dtype == torch.int8:  # Four bytes of -1 are a float that is not a number.
            self.cache = torch.full(shape, -1, dtype=torch.int8)
        else:
            self.cache = torch.full(shape, float("nan"), dtype=cache_dtype)
        self.keys, self.values, self.queries, slots = [], [], [], []
        start = 0
        for row, length in enumerate(self.seq_lens):
            table = order[start : start + blocks[row]]
            start += blocks[row]
            self.tables[row, : blocks[row]] = table.int()
            k, v = torch.randn((2, length, kv_heads, head_dim), generator=generator).to(dtype)
            self.keys.append(k)
            self.values.append(v)
            self.queries.append(torch.randn((self.new[row], heads, head_dim), generator=generator).to(dtype))
            positions = torch.arange(length)
            slots.append(table[positions // block_size] * block_size + positions % block_size)
        self.slots = slots

    def write(self, ops: Ops) -> None:
        ops.write_kv(torch.cat(self.keys), torch.cat(self.values), self.cache, torch.cat(self.slots))

    def round_to_cache(self, head_dim: int) -> None:
        """Puts what the written cache holds in place of keys and values."""
        rows = self.cache
        if rows.dtype == torch.int8:
            scale = rows[..., head_dim:].contiguous().view(torch.float32)
            rows = rows[..., :head_dim].float() * scale
        for i, slots in enumerate(self.slots):
            block, offset = slots // rows.shape[3], slots % rows.shape[3]
            self.keys[i], self.values[i] = rows[block, 0, :, offset], rows[block, 1, :, offset]

    def metadata(self) -> AttentionMetadata:
        starts = np.concatenate(([0], np.cumsum(self.new))).astype(np.int32)
        lens = np.array(self.seq_lens, np.int32)
        return AttentionMetadata(
            query_start=torch.from_numpy(starts),
            seq_lens=torch.from_numpy(lens),
            block_tables=self.tables,
            slot_mapping=torch.cat([s[len(s) - n :] for s, n in zip(self.slots, self.new, strict=True)]),
            host_query_start=starts,
            host_seq_lens=lens,
            num_decode_rows=self.new.count(1),
            max_query_len=max(self.new),
            max_seq_len=max(self.seq_lens),
        )

    def attend(self, ops: Ops, window: int | None = None, softcap: float | None = None) -> Tensor:
        self.write(ops)
        q = torch.cat(self.queries)
        return ops.paged_attention(q, self.cache, self.metadata(), 0.2, window=window, softcap=softcap)

    def expected(self, window: int | None = None, softcap: float | None = None) -> Tensor:
        outputs = []
        for q, key, value in zip(self.queries, self.keys, self.values, strict=True):
            group = q.shape[1] // key.shape[1]
            k, v = key.double().repeat_interleave(group, 1), value.double().repeat_interleave(group, 1)
            scores = torch.einsum("qhd,khd->hqk", q.double(), k) * 0.2
            if softcap is not None:
                scores = softcap * torch.tanh(scores / softcap)
            at = torch.arange(len(k) - len(q), len(k)).view(-1, 1)
            key_at = torch.arange(len(k))
            hidden = key_at > at
            if window is not None:
                hidden |= key_at <= at - window
            probs = scores.masked_fill(hidden, float("-inf")).softmax(-1)
            outputs.append(torch.einsum("hqk,khd->qhd", probs, v))
        return torch.cat(outputs)


MIXED = [(1, 1), (16, 1), (17, 1), (200, 1), (5, 5), (33, 16), (64, 7), (130, 129), (90, 1), (40, 2)]


def check(paged: Paged, ops: Ops, dtype: torch.dtype, **rule: float | None) -> None:
    actual, expected = paged.attend(ops, **rule), paged.expected(**rule)
    assert actual.shape == expected.shape
    assert actual.dtype == dtype
    error = (actual.double() - expected).abs().max()
    assert error < ERROR[dtype], float(error)


@pytest.mark.parametrize("window", [None, 1, 16, 50])
@pytest.mark.parametrize("softcap", [None, 3.0])
def test_mixed_rows(kernels: Ops, dtype: torch.dtype, window: int | None, softcap: float | None) -> None:
    check(Paged(MIXED, dtype), kernels, dtype, window=window, softcap=softcap)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "block_size"),
    [(9, 3, 64, 16), (4, 4, 16, 8), (8, 1, 128, 32), (6, 2, 80, 1), (14, 2, 64, 64), (5, 5, 24, 3)],
)
def test_shapes(kernels: Ops, heads: int, kv_heads: int, head_dim: int, block_size: int) -> None:
    rows = [(1, 1), (70, 1), (35, 20), (3, 3)]
    paged = Paged(rows, heads=heads, kv_heads=kv_heads, head_dim=head_dim, block_size=block_size, seed=heads)
    check(paged, kernels, torch.float32)


def test_write_kv_touches_only_its_slots(kernels: Ops, dtype: torch.dtype) -> None:
    cache = torch.zeros((3, 2, 2, 4, 8), dtype=dtype)
    k, v = torch.randn(2, 2, 2, 8).to(dtype)
    kernels.write_kv(k, v, cache, torch.tensor([9, 3]))
    assert torch.equal(cache[2, 0, :, 1], k[0])
    assert torch.equal(cache[0, 1, :, 3], v[1])
    cache[2, :, :, 1] = 0
    cache[0, :, :, 3] = 0
    assert not cache.any()


@pytest.mark.parametrize("window", [None, 20])
def test_a_row_does_not_depend_on_the_others(kernels: Ops, dtype: torch.dtype, window: int | None) -> None:
    paged = Paged(MIXED, dtype)
    together = paged.attend(kernels, window=window)
    start = 0
    for row, (length, new) in enumerate(paged.rows):
        alone = Paged([(length, new)], dtype)
        alone.cache, alone.tables = paged.cache, paged.tables[row : row + 1]
        alone.slots, alone.queries = [paged.slots[row]], [paged.queries[row]]
        metadata = alone.metadata()
        result = kernels.paged_attention(paged.queries[row], paged.cache, metadata, 0.2, window=window)
        assert torch.equal(result, together[start : start + new]), (length, new)
        start += new


@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("chunk", [1, 7, 16, 50])
def test_a_token_does_not_depend_on_how_the_prompt_was_cut(
    kernels: Ops, dtype: torch.dtype, window: int | None, chunk: int
) -> None:
    paged = Paged([(101, 101)], dtype)
    whole = paged.attend(kernels, window=window)
    for start in range(0, 101, chunk):
        end = min(start + chunk, 101)
        part = Paged([(end, end - start)], dtype)
        part.cache, part.tables = paged.cache, paged.tables
        part.slots = [paged.slots[0][:end]]
        q = paged.queries[0][start:end]
        result = kernels.paged_attention(q, paged.cache, part.metadata(), 0.2, window=window)
        assert torch.equal(result, whole[start:end]), (start, end)


CACHES = [torch.float32, torch.bfloat16, torch.float16, torch.int8]


@pytest.mark.parametrize("cache_dtype", CACHES, ids=str)
@pytest.mark.parametrize("head_dim", [32, 36, 64])
def test_a_cache_of_another_type_is_as_close_as_its_rounding(
    kernels: Ops, cache_dtype: torch.dtype, head_dim: int
) -> None:
    paged = Paged(MIXED, head_dim=head_dim, cache_dtype=cache_dtype)
    actual, exact = paged.attend(kernels), paged.expected()
    paged.round_to_cache(head_dim)
    rounded = paged.expected()
    assert (actual.double() - rounded).abs().max() < ERROR[torch.float32]
    # What the rounding itself costs: values to half a step, weights by scores that moved.
    limit = {torch.float32: 3e-6, torch.bfloat16: 3e-2, torch.float16: 4e-3, torch.int8: 8e-2}[cache_dtype]
    assert (actual.double() - exact).abs().max() < limit


@pytest.mark.parametrize("of", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("head_dim", [16, 36, 64])
def test_bytes_and_scales_are_those_of_the_reference(of: torch.dtype, head_dim: int) -> None:
    k, v = (torch.randn((2, 40, 3, head_dim), generator=torch.Generator().manual_seed(1)) * 5).to(of)
    k[3, 1], v[7, 2, 5] = 0.0, 300.0
    shape = (6, 2, 3, 8, kv_row(head_dim, torch.int8))
    slots = torch.randperm(48)[:40]
    ours, reference = torch.zeros((2, *shape), dtype=torch.int8)
    cpu.write_kv(k, v, ours, slots)
    torch_attention.write_kv(k, v, reference, slots)
    assert torch.equal(ours, reference)
    assert ours.any()


@pytest.mark.parametrize("chunk", [1, 16, 50])
def test_a_token_over_bytes_does_not_depend_on_how_the_prompt_was_cut(kernels: Ops, chunk: int) -> None:
    paged = Paged([(101, 101)], cache_dtype=torch.int8)
    whole = paged.attend(kernels)
    for start in range(0, 101, chunk):
        end = min(start + chunk, 101)
        part = Paged([(end, end - start)], cache_dtype=torch.int8)
        part.cache, part.tables = paged.cache, paged.tables
        part.slots = [paged.slots[0][:end]]
        result = kernels.paged_attention(paged.queries[0][start:end], paged.cache, part.metadata(), 0.2)
        assert torch.equal(result, whole[start:end]), (start, end)


def test_a_cache_whose_rows_do_not_fit_the_heads_is_refused() -> None:
    k = torch.zeros((1, 2, 8))
    with pytest.raises(ValueError, match=r"heads of 8 over a cache of torch.int8 rows of 8"):
        cpu.write_kv(k, k, torch.zeros((1, 2, 2, 4, 8), dtype=torch.int8), torch.tensor([0]))
