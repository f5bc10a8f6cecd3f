"""Dense ops against float64 arithmetic, and rows against the same rows in other company."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

if TYPE_CHECKING:
    from octavo.ops import Ops

ERROR = {torch.float32: 2e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}
"""Largest error allowed, relative to the largest value."""


def close(actual: Tensor, expected: Tensor) -> None:
    assert actual.shape == expected.shape
    assert actual.is_contiguous()
    scale = expected.abs().max().clamp(min=1.0)
    error = (actual.double() - expected).abs().max() / scale
    assert error <= ERROR[actual.dtype], float(error)


def randn(generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=generator).to(dtype)


@pytest.mark.parametrize("features", [16, 64, 576, 4096])
@pytest.mark.parametrize("tokens", [1, 3, 130])
def test_rms_norm(
    kernels: Ops, dtype: torch.dtype, generator: torch.Generator, tokens: int, features: int
) -> None:
    x, weight = randn(generator, tokens, features, dtype=dtype), randn(generator, features, dtype=dtype)
    wide = x.double()
    expected = wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    close(kernels.rms_norm(x, weight, 1e-5), expected)


def test_rms_norm_of_heads_in_a_merged_projection(
    kernels: Ops, dtype: torch.dtype, generator: torch.Generator
) -> None:
    merged = randn(generator, 5, 6 * 32 + 64, dtype=dtype)
    x, weight = merged[:, : 6 * 32].unflatten(-1, (6, 32)), randn(generator, 32, dtype=dtype)
    wide = x.double()
    expected = wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight.double()
    close(kernels.rms_norm(x, weight, 1e-6), expected)


def test_add_rms_norm(kernels: Ops, dtype: torch.dtype, generator: torch.Generator) -> None:
    x, residual = randn(generator, 7, 576, dtype=dtype), randn(generator, 7, 576, dtype=dtype)
    weight = randn(generator, 576, dtype=dtype)
    total = (x.double() + residual.double()).to(dtype).double()
    expected = total / (total.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    normed, summed = kernels.add_rms_norm(x, residual, weight, 1e-5)
    close(normed, expected)
    close(summed, total)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("head_dim", "rotary_dim"), [(64, 64), (128, 128), (80, 32), (16, 16)])
@pytest.mark.parametrize("tokens", [1, 37])
def test_rotary(
    kernels: Ops,
    dtype: torch.dtype,
    generator: torch.Generator,
    tokens: int,
    head_dim: int,
    rotary_dim: int,
    interleaved: bool,
) -> None:
    angles = torch.outer(torch.arange(100.0), torch.rand(rotary_dim // 2, generator=generator))
    cache = torch.cat((angles.cos(), angles.sin()), -1)
    positions = torch.randint(0, 100, (tokens,), generator=generator)
    merged = randn(generator, tokens, (6 + 2) * head_dim, dtype=dtype)
    q, k = merged.unflatten(-1, (8, head_dim)).split((6, 2), dim=1)
    before = merged.unflatten(-1, (8, head_dim)).double()
    kernels.rotary(positions, q, k, cache, interleaved=interleaved)

    pairs = torch.arange(rotary_dim).view(-1, 2) if interleaved else torch.arange(rotary_dim).view(2, -1).T
    turned = torch.view_as_complex(before[..., pairs].contiguous())
    turns = torch.polar(torch.ones(1).double(), angles.double())[positions]
    turned = torch.view_as_real(turned * turns[:, None])
    expected = before.clone()
    expected[..., pairs] = turned
    close(merged.unflatten(-1, (8, head_dim)), expected)


@pytest.mark.parametrize("features", [16, 1536])
def test_silu_and_mul(kernels: Ops, dtype: torch.dtype, generator: torch.Generator, features: int) -> None:
    x = randn(generator, 5, 2 * features, dtype=dtype) * 3
    gate, up = x.double().chunk(2, -1)
    close(kernels.silu_and_mul(x), gate / (1 + (-gate).exp()) * up)


@pytest.mark.parametrize("features", [1, 40, 1536])
def test_gelu_and_mul(kernels: Ops, dtype: torch.dtype, generator: torch.Generator, features: int) -> None:
    x = randn(generator, 5, 2 * features, dtype=dtype) * 3
    gate, up = x.double().chunk(2, -1)
    inner = (2 / torch.pi) ** 0.5 * (gate + 0.044715 * gate**3)
    close(kernels.gelu_and_mul(x), 0.5 * gate * (1 + torch.tanh(inner)) * up)


def test_embedding(kernels: Ops, dtype: torch.dtype, generator: torch.Generator) -> None:
    table = randn(generator, 50, 24, dtype=dtype)
    tokens = torch.tensor([3, 49, 0, 3])
    assert torch.equal(kernels.embedding(tokens, table), torch.stack([table[t] for t in (3, 49, 0, 3)]))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("inputs", "outputs"), [(64, 48), (576, 960), (100, 33)])
@pytest.mark.parametrize("tokens", [1, 2, 5, 16, 67])
def test_linear(
    kernels: Ops,
    dtype: torch.dtype,
    generator: torch.Generator,
    tokens: int,
    inputs: int,
    outputs: int,
    bias: bool,
) -> None:
    x, weight = randn(generator, tokens, inputs, dtype=dtype), randn(generator, outputs, inputs, dtype=dtype)
    offset = randn(generator, outputs, dtype=dtype) if bias else None
    expected = x.double() @ weight.double().T
    if offset is not None:
        expected += offset.double()
    close(kernels.pack_linear(weight, offset)(x), expected)


@pytest.mark.parametrize("inputs", [64, 576, 1536])
def test_a_rows_product_does_not_depend_on_the_other_rows(
    served: Ops, dtype: torch.dtype, generator: torch.Generator, inputs: int
) -> None:
    x, weight = randn(generator, 300, inputs, dtype=dtype), randn(generator, 96, inputs, dtype=dtype)
    linear = served.pack_linear(weight, None)
    whole = linear(x)
    for rows in (1, 2, 3, 4, 5, 7, 8, 11, 16, 31, 64, 257):
        assert torch.equal(linear(x[:rows].contiguous()), whole[:rows]), rows
    shuffled = torch.randperm(300, generator=generator)
    assert torch.equal(linear(x[shuffled]), whole[shuffled])


def test_a_rows_norm_and_activation_do_not_depend_on_the_other_rows(
    served: Ops, dtype: torch.dtype, generator: torch.Generator
) -> None:
    x, weight = randn(generator, 200, 576, dtype=dtype), randn(generator, 576, dtype=dtype)
    normed, activated = served.rms_norm(x, weight, 1e-5), served.silu_and_mul(x)
    gelu = served.gelu_and_mul(x)
    for rows in (1, 2, 3, 17):
        assert torch.equal(served.rms_norm(x[:rows].contiguous(), weight, 1e-5), normed[:rows])
        assert torch.equal(served.silu_and_mul(x[:rows].contiguous()), activated[:rows])
        assert torch.equal(served.gelu_and_mul(x[:rows].contiguous()), gelu[:rows])
