"""Products with weights that stay quantised, against their decoded weights in float64."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import Tensor

from octavo import ops
from octavo.ops import cpu
from octavo.quantization.blocks import KERNEL_FORMATS, Blocks, block_bytes
from octavo.quantization.gguf import FORMATS

if TYPE_CHECKING:
    from octavo.ops import Ops

ROUNDING = {torch.float32: 1e-5, torch.bfloat16: 8e-3, torch.float16: 1e-3}
"""Of the output, relative to the sum of the products' sizes."""

HALVES = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
"""Where a block's 16-bit floats lie; at 0 alone in the others."""

formats = pytest.mark.parametrize("name", sorted(KERNEL_FORMATS))


def random_blocks(name: str, rows: int, columns: int, seed: int = 0) -> Blocks:
    layout = FORMATS[name]
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 256, (rows * columns // layout.block_size, layout.block_bytes), dtype=np.uint8)
    for offset in HALVES.get(name, (0,)):
        halves = rng.uniform(0.004, 0.02, len(data)).astype(np.float16)
        data[:, offset : offset + 2] = halves.reshape(-1, 1).view(np.uint8)
    return Blocks(data.reshape(rows, -1), name)


def check(actual: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Inputs may be rounded by half a step, 1 / 254 of the greatest of their 32."""
    wide = x.double()
    expected = wide @ weight.double().T + (0.0 if bias is None else bias.double())
    greatest = wide.unflatten(-1, (-1, 32)).abs().amax(-1, keepdim=True).expand(-1, -1, 32).flatten(1)
    size = wide.abs() @ weight.double().abs().T + expected.abs()
    bound = (greatest / 254) @ weight.double().abs().T + ROUNDING[x.dtype] * size + 1e-6
    assert actual.dtype == x.dtype
    assert actual.shape == expected.shape
    assert ((actual.double() - expected).abs() <= bound).all()


@formats
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("tokens", "outputs", "inputs"), [(1, 16, 256), (5, 33, 768), (67, 100, 512)])
def test_a_product_of_each_format(
    kernels: Ops, dtype: torch.dtype, generator: torch.Generator, name: str, bias: bool, tokens: int,
    outputs: int, inputs: int,
) -> None:  # fmt: skip
    x = torch.randn(tokens, inputs, generator=generator).to(dtype)
    offset = torch.randn(outputs, generator=generator).to(dtype) if bias else None
    blocks = random_blocks(name, outputs, inputs)
    check(kernels.pack_quantized_linear([blocks], offset)(x), x, blocks.dequantize(), offset)


@pytest.mark.parametrize("inputs", [32, 96, 576])
@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_rows_of_few_small_blocks(kernels: Ops, generator: torch.Generator, name: str, inputs: int) -> None:
    x, blocks = torch.randn(3, inputs, generator=generator), random_blocks(name, 48, inputs)
    check(kernels.pack_quantized_linear([blocks], None)(x), x, blocks.dequantize(), None)


def test_parts_of_different_formats_lie_side_by_side(
    kernels: Ops, dtype: torch.dtype, generator: torch.Generator
) -> None:
    floats = torch.randn(24, 256, generator=generator).to(dtype) * 0.1
    names = ("Q4_K", "Q4_K", "Q6_K", None, "Q8_0")
    parts = [floats if n is None else random_blocks(n, 8 + 9 * i, 256, i) for i, n in enumerate(names)]
    outputs = sum(part.shape[0] for part in parts)
    x, bias = torch.randn(6, 256, generator=generator).to(dtype), torch.randn(outputs, generator=generator)
    product = kernels.pack_quantized_linear(parts, bias)
    weight = torch.cat([part.dequantize() if isinstance(part, Blocks) else part.float() for part in parts])
    check(product(x), x, weight, bias)
    ends = np.cumsum([0, *(part.shape[0] for part in parts)])
    for part, (start, end) in zip(parts, pairwise(ends), strict=True):
        alone = kernels.pack_quantized_linear([part], bias[start:end])
        assert torch.allclose(alone(x).float(), product(x)[:, start:end].float(), rtol=1e-5, atol=1e-5)


@formats
def test_rows_are_looked_up(kernels: Ops, dtype: torch.dtype, name: str) -> None:
    blocks = random_blocks(name, 50, 512)
    table, tokens = kernels.pack_quantized_linear([blocks], None), torch.tensor([3, 49, 0, 3])
    rows = table.rows(tokens, dtype)
    assert torch.equal(rows, blocks.dequantize()[tokens].to(dtype))


@formats
def test_a_rows_product_does_not_depend_on_the_other_rows(
    dtype: torch.dtype, generator: torch.Generator, name: str
) -> None:
    kernels = ops.select(torch.device("cpu"))
    x = torch.randn(150, 512, generator=generator).to(dtype)
    linear = kernels.pack_quantized_linear([random_blocks(name, 96, 512)], None)
    whole = linear(x)
    for rows in (1, 2, 3, 4, 5, 7, 8, 11, 16, 31, 64, 129):
        assert torch.equal(linear(x[:rows].contiguous()), whole[:rows]), rows
    shuffled = torch.randperm(150, generator=generator)
    assert torch.equal(linear(x[shuffled]), whole[shuffled])


def test_small_blocks_take_no_more_memory_than_in_the_file() -> None:
    for name in ("Q4_0", "Q4_1", "Q8_0"):
        packed = cpu.pack_quantized_linear([random_blocks(name, 1024, 512)])
        assert packed.size_bytes == block_bytes(name, 1024, 512) + 1024 * 4


@pytest.mark.parametrize("name", ["Q8_0", "Q4_1"])
def test_floats_become_the_nearest_of_a_blocks_values(
    kernels: Ops, dtype: torch.dtype, generator: torch.Generator, name: str
) -> None:
    weight = torch.randn(37, 192, generator=generator).to(dtype)
    weight[0, :32], weight[1, :32] = 0.0, -0.75
    blocks = kernels.quantize(weight, name)
    assert np.array_equal(blocks.data, ops.torch_ops.quantize(weight, name).data)
    assert (blocks.format, blocks.shape) == (name, (37, 192))
    groups = weight.float().unflatten(-1, (-1, 32))
    least, greatest = groups.aminmax(dim=-1, keepdim=True)
    size = groups.abs().amax(-1, keepdim=True)
    step = size / 127 if name == "Q8_0" else (greatest - least) / 15
    error = (blocks.dequantize() - weight.float()).unflatten(-1, (-1, 32)).abs()
    assert (error <= step / 2 + size * 1e-3).all()


def test_what_does_not_fit_is_refused() -> None:
    blocks = random_blocks("Q8_0", 4, 64)
    product = cpu.pack_quantized_linear([blocks])
    with pytest.raises(ValueError, match=r"shape \(3, 32\) has no contiguous rows of 64"):
        product(torch.zeros((3, 32)))
    with pytest.raises(ValueError, match="a bias of shape"):
        cpu.pack_quantized_linear([blocks], torch.zeros(5))
    with pytest.raises(ValueError, match=r"parts of shapes \[\(4, 64\), \(4, 32\)\]"):
        cpu.pack_quantized_linear([blocks, random_blocks("Q8_0", 4, 32)])
    with pytest.raises(ValueError, match="token id 4 at 0 is not below 4"):
        product.rows(torch.tensor([4]), torch.float32)
    for kernels in (ops.torch_ops, ops.select(torch.device("cpu"))):
        with pytest.raises(ValueError, match=r"rows of 40 weights are not (whole )?blocks of 32"):
            kernels.quantize(torch.zeros((2, 40)), "Q8_0")
        with pytest.raises(ValueError, match="floats are quantised to Q8_0 or Q4_1, not Q4"):
            kernels.quantize(torch.zeros((2, 256)), "Q4_K")
    with pytest.raises(ValueError, match="no contiguous rows of Q8_0 blocks"):
        Blocks(np.zeros((2, 33), np.uint8), "Q8_0")
    assert product(torch.zeros((0, 64))).shape == (0, 4)
