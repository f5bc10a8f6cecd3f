"""Ops: one signature each, several implementations, chosen once when a model is built.

The torch implementations run on any device and are the oracle for all others. On a CPU, `octavo.ops.cpu`
replaces those that it names.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from octavo.ops import torch_attention, torch_dense, torch_int8, torch_quantized, torch_sampling
from octavo.ops.metadata import AttentionMetadata

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import Tensor

    from octavo.quantization.blocks import Blocks

__all__ = [
    "AttentionMetadata",
    "Forward",
    "ModelForward",
    "Ops",
    "PackedLinear",
    "op_by_op",
    "select",
    "torch_ops",
]


class RotaryOp(Protocol):
    """See `torch_dense.rotary`."""

    def __call__(
        self, positions: Tensor, q: Tensor, k: Tensor, cos_sin_cache: Tensor, *, interleaved: bool = False
    ) -> None:
        """Rotates `q` and `k` in place."""


class AttentionOp(Protocol):
    """See `torch_attention.paged_attention`."""

    def __call__(
        self,
        q: Tensor,
        kv_cache: Tensor,
        metadata: AttentionMetadata,
        scale: float,
        *,
        window: int | None = None,
        softcap: float | None = None,
    ) -> Tensor:
        """Attends to the rows' blocks."""


class PackedLinear(Protocol):
    """What `torch_dense.pack_linear` and `torch_quantized.pack_quantized_linear` return."""

    size_bytes: int

    def __call__(self, x: Tensor) -> Tensor:
        """[tokens, in] -> [tokens, out]."""

    def rows(self, tokens: Tensor, dtype: torch.dtype) -> Tensor:
        """Rows of the weight by id: [tokens] -> [tokens, in]."""


class ModelForward(Protocol):
    """A model's forward pass; metadata and caches are each layer's."""

    def __call__(
        self,
        tokens: Tensor,
        positions: Tensor,
        metadata: Sequence[AttentionMetadata],
        kv_caches: Sequence[Tensor],
    ) -> Tensor:
        """Int64 [tokens] ids and positions -> hidden states [tokens, hidden]."""


Forward = Callable[["Tensor", "Tensor", "Sequence[AttentionMetadata]"], "Tensor"]
"""The same with the caches bound."""


@dataclass(frozen=True)
class Ops:
    """The implementations that a model uses. Contracts: the docstrings of the torch functions of the same
    names.
    """

    rms_norm: Callable[[Tensor, Tensor, float], Tensor]
    add_rms_norm: Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]
    rotary: RotaryOp
    silu_and_mul: Callable[[Tensor], Tensor]
    gelu_and_mul: Callable[[Tensor], Tensor]
    scale: Callable[[Tensor, float], Tensor]
    embedding: Callable[[Tensor, Tensor], Tensor]
    pack_linear: Callable[[Tensor, Tensor | None], PackedLinear]
    pack_quantized_linear: Callable[[Sequence[Blocks | Tensor], Tensor | None], PackedLinear]
    pack_int8_linear: Callable[[Tensor, Tensor, Tensor | None], Callable[[Tensor], Tensor]]
    quantize: Callable[[Tensor, str], Blocks]
    write_kv: Callable[[Tensor, Tensor, Tensor, Tensor], None]
    paged_attention: AttentionOp
    greedy: Callable[[Tensor], tuple[Tensor, Tensor]]
    draw: Callable[..., Tensor]
    penalize: Callable[..., Tensor]
    token_logprobs: Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor, Tensor, Tensor]]
    record: Callable[[ModelForward, Sequence[Tensor], Sequence[int]], Forward]
    """Binds a pass to its KV caches, given the group of each layer, and makes it as fast as can be."""


def op_by_op(forward: ModelForward, kv_caches: Sequence[Tensor], _groups: Sequence[int]) -> Forward:
    """The pass as it is."""
    return partial(forward, kv_caches=kv_caches)


torch_ops = Ops(
    rms_norm=torch_dense.rms_norm,
    add_rms_norm=torch_dense.add_rms_norm,
    rotary=torch_dense.rotary,
    silu_and_mul=torch_dense.silu_and_mul,
    gelu_and_mul=torch_dense.gelu_and_mul,
    scale=torch_dense.scale,
    embedding=torch_dense.embedding,
    pack_linear=torch_dense.pack_linear,
    pack_quantized_linear=torch_quantized.pack_quantized_linear,
    pack_int8_linear=torch_int8.pack_int8_linear,
    quantize=torch_quantized.quantize,
    write_kv=torch_attention.write_kv,
    paged_attention=torch_attention.paged_attention,
    greedy=torch_sampling.greedy,
    draw=torch_sampling.draw,
    penalize=torch_sampling.penalize,
    token_logprobs=torch_sampling.token_logprobs,
    record=op_by_op,
)


def select(device: torch.device, threads: int | None = None, cores: Sequence[int] = ()) -> Ops:
    """The fastest implementations for a device.

    On a CPU they are computed by `threads`, the caller among them, from here on; None leaves that as it is.
    Where `cores` are given, each thread but the caller stays on its own. Raises ValueError where one is
    refused.
    """
    if device.type != "cpu":
        return torch_ops
    # Loaded here because its threads are started when it is imported.
    kernels = importlib.import_module("octavo.ops.cpu")
    if threads is not None:
        kernels.start_threads(threads, cores)
    record = importlib.import_module("octavo.ops.cpu_program").record
    names = [field.name for field in fields(Ops)]
    found = {name: getattr(kernels, name) for name in names if hasattr(kernels, name)}
    return replace(torch_ops, **found, record=record)
