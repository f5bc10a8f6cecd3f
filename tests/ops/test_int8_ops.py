"""8-bit rows and weights against integers, and rows against the same rows in other company."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from octavo.ops import cpu, torch_int8

if TYPE_CHECKING:
    from octavo.ops import Ops


def weights(generator: torch.Generator, outputs: int, inputs: int) -> tuple[Tensor, Tensor]:
    weight = torch.randint(-128, 128, (outputs, inputs), generator=generator, dtype=torch.int8)
    return weight, torch.rand(outputs, generator=generator) / 100


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("inputs", "outputs"), [(64, 48), (576, 960), (100, 33), (1, 1), (2050, 17)])
@pytest.mark.parametrize("tokens", [1, 2, 5, 16, 67])
def test_a_product_is_that_of_its_integers(
    kernels: Ops,
    dtype: torch.dtype,
    generator: torch.Generator,
    tokens: int,
    inputs: int,
    outputs: int,
    bias: bool,
) -> None:
    x = torch.randn(tokens, inputs, generator=generator).to(dtype)
    weight, scale = weights(generator, outputs, inputs)
    offset = torch.randn(outputs, generator=generator) if bias else None
    y = kernels.pack_int8_linear(weight, scale, offset)(x)
    greatest = x.float().abs().amax(-1, keepdim=True)
    integers = (x.float() * (torch.tensor(127.0) / greatest)).round().long()
    exact = (integers @ weight.long().T).double() * (greatest / 127.0).double() * scale.double()
    if offset is not None:
        exact += offset.double()
    # Integer to float, two scales and the sum: four roundings, then one to the type.
    size = exact.abs() + (0 if offset is None else 2 * offset.double().abs())
    bound = size * (4 * 2.0**-24 + torch.finfo(dtype).eps / 2 * 1.01) + 1e-7
    assert y.dtype == dtype
    assert ((y.double() - exact).abs() <= bound).all()


@pytest.mark.parametrize("tokens", [1, 3, 64])
def test_the_kernel_has_the_bits_of_the_reference(generator: torch.Generator, tokens: int) -> None:
    x = torch.randn(tokens, 577, generator=generator)
    weight, scale = weights(generator, 131, 577)
    bias = torch.randn(131, generator=generator)
    assert torch.equal(
        cpu.pack_int8_linear(weight, scale, bias)(x), torch_int8.int8_linear(x, weight, scale, bias)
    )


def test_a_rows_product_does_not_depend_on_the_other_rows(kernels: Ops, generator: torch.Generator) -> None:
    x = torch.randn(150, 576, generator=generator)
    linear = kernels.pack_int8_linear(*weights(generator, 96, 576), None)
    whole = linear(x)
    for rows in (1, 2, 3, 5, 8, 12, 13, 64, 129):
        assert torch.equal(linear(x[:rows].contiguous()), whole[:rows]), rows


def test_zeros_stay_and_what_is_not_finite_stays_so(kernels: Ops, generator: torch.Generator) -> None:
    x = torch.randn(5, 70, generator=generator)
    x[0], x[1, 69], x[2, 0], x[3] = 0.0, float("nan"), float("-inf"), 1e-40
    y = kernels.pack_int8_linear(*weights(generator, 20, 70), None)(x)
    assert not y[0].any()
    assert not y[3].any()
    assert y[1:3].isnan().all()
    assert y[4].isfinite().all()


def test_shapes_that_do_not_fit_are_refused() -> None:
    weight = torch.zeros((8, 6), dtype=torch.int8)
    with pytest.raises(ValueError, match=r"scales of shape \(7,\) for 8 outputs"):
        cpu.pack_int8_linear(weight, torch.ones(7))
    with pytest.raises(ValueError, match=r"int8 linear: torch.float32"):
        cpu.pack_int8_linear(weight.float(), torch.ones(8))
    with pytest.raises(ValueError, match=r"a bias of shape \(6,\) for 8 outputs"):
        cpu.pack_int8_linear(weight, torch.ones(8), torch.ones(6))
