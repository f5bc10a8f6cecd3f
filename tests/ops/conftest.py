"""Every implementation that this machine can run, under the same tests."""

from __future__ import annotations

import pytest
import torch

from octavo import ops


@pytest.fixture(params=["torch", "selected"])
def kernels(request: pytest.FixtureRequest) -> ops.Ops:
    """The reference, and what the CPU is served with."""
    return ops.torch_ops if request.param == "torch" else ops.select(torch.device("cpu"))


@pytest.fixture
def served() -> ops.Ops:
    """What the CPU is served with: only here does a row's result promise not to depend on the others."""
    return ops.select(torch.device("cpu"))


@pytest.fixture(params=[torch.float32, torch.bfloat16, torch.float16], ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
