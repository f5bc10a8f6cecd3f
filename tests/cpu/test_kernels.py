"""What the CPU kernels promise beyond the ops' contracts: bits, messages, memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from octavo._core import CpuKernels
from octavo.ops import AttentionMetadata, cpu

if TYPE_CHECKING:
    from torch import Tensor

FLOATS = [torch.float32, torch.bfloat16, torch.float16]


def instruction_sets(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found = []
    for name in ("scalar", "avx2", "avx2vnni", "avx512", "neon", "neondot"):
        monkeypatch.setenv("OCTAVO_CPU_ISA", name)
        try:
            found.append(CpuKernels(1, []).isa)
        except ValueError as error:
            assert "not available on this machine" in str(error)  # noqa: PT017
    return found


def step(dtype: torch.dtype) -> list[Tensor]:
    """One of everything."""
    generator = torch.Generator().manual_seed(3)

    def randn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    x, norm = randn(21, 96), randn(96)
    hidden, residual = cpu.add_rms_norm(x.clone(), randn(21, 96), norm, 1e-5)
    merged = cpu.pack_linear(randn(5 * 32, 96), randn(5 * 32))(hidden)
    q, k, v = merged.unflatten(-1, (5, 32)).split((3, 1, 1), dim=1)
    angles = torch.outer(torch.arange(30.0), 1.0 / torch.arange(1.0, 17.0))
    cpu.rotary(torch.arange(21), q, k, torch.cat((angles.cos(), angles.sin()), -1))
    cache = torch.zeros((4, 2, 1, 8, 32), dtype=dtype)
    cpu.write_kv(k, v, cache, torch.arange(21) + 8)
    starts = np.array([0, 21], np.int32)
    metadata = AttentionMetadata(
        query_start=torch.from_numpy(starts),
        seq_lens=torch.tensor([21], dtype=torch.int32),
        block_tables=torch.tensor([[1, 2, 3]], dtype=torch.int32),
        slot_mapping=torch.arange(21) + 8,
        host_query_start=starts,
        host_seq_lens=np.array([21], np.int32),
        num_decode_rows=0,
        max_query_len=21,
        max_seq_len=21,
    )
    mixed = cpu.paged_attention(q, cache, metadata, 0.2, window=11, softcap=20.0)
    gated = cpu.silu_and_mul(mixed.flatten(1).contiguous())
    logits = cpu.pack_linear(randn(501, 48))(gated).float()
    ones = torch.ones(21)
    drawn = cpu.draw(
        logits,
        temperature=ones,
        top_k=torch.full((21,), 40, dtype=torch.int32),
        top_p=0.9 * ones,
        min_p=0.01 * ones,
        uniform=torch.linspace(0.01, 0.99, 21, dtype=torch.float64),
    )
    return [residual, mixed, logits, drawn, *cpu.greedy(logits), *cpu.token_logprobs(logits, drawn, 9)]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_instruction_set_and_thread_count_gives_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    expected = step(dtype)
    for name in instruction_sets(monkeypatch):
        monkeypatch.setenv("OCTAVO_CPU_ISA", name)
        for threads in (1, 2, 5):
            monkeypatch.setattr(cpu, "_kernels", CpuKernels(threads, []))
            for actual, wanted in zip(step(dtype), expected, strict=True):
                assert torch.equal(actual, wanted), (name, threads)


def test_an_unknown_instruction_set_is_refused_with_the_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_CPU_ISA", "mmx")
    with pytest.raises(ValueError, match=r"OCTAVO_CPU_ISA=mmx is not available.* choose one of: scalar"):
        CpuKernels(1, [])


def test_a_packed_weight_takes_no_more_than_its_elements() -> None:
    packed = cpu.pack_linear(torch.zeros((1024, 2048), dtype=torch.bfloat16))
    assert packed.size_bytes == 1024 * 2048 * 2 + 1024 * 4


def test_shapes_that_do_not_fit_are_refused() -> None:
    linear = cpu.pack_linear(torch.zeros((8, 6)))
    with pytest.raises(ValueError, match=r"shape \(3, 7\) has no contiguous rows of 6"):
        linear(torch.zeros((3, 7)))
    with pytest.raises(ValueError, match="no contiguous rows"):
        linear(torch.zeros((6, 3)).T)
    with pytest.raises(ValueError, match="a bias of shape"):
        cpu.pack_linear(torch.zeros((8, 6)), torch.zeros(7))
    with pytest.raises(ValueError, match="token id 9 at 1 is not below 9"):
        cpu.embedding(torch.tensor([0, 9]), torch.zeros((9, 4)))
    one = torch.zeros((1, 1, 4))
    with pytest.raises(ValueError, match="slot 8 of token 0 is not below 8"):
        cpu.write_kv(one, one, torch.zeros((2, 2, 1, 4, 4)), torch.tensor([8]))
    with pytest.raises(ValueError, match="position 4 is not below 4"):
        cpu.rotary(torch.tensor([4]), torch.zeros((1, 1, 4)), torch.zeros((1, 1, 4)), torch.zeros((4, 4)))
    with pytest.raises(ValueError, match="logits are float32"):
        cpu.greedy(torch.zeros((1, 4), dtype=torch.bfloat16))
    with pytest.raises(ValueError, match="token 4 of row 0 is not below 4"):
        cpu.token_logprobs(torch.zeros((1, 4)), torch.tensor([4]), 1)


def test_no_rows_are_no_work() -> None:
    empty = torch.zeros((0, 6))
    assert cpu.pack_linear(torch.zeros((8, 6)))(empty).shape == (0, 8)
    assert cpu.rms_norm(empty, torch.ones(6), 1e-5).shape == (0, 6)
    assert cpu.silu_and_mul(empty).shape == (0, 3)
