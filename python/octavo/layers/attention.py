"""Attention over a layer's paged KV cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

if TYPE_CHECKING:
    from octavo.layers.backend import Backend
    from octavo.ops import AttentionMetadata


class Attention(nn.Module):
    """Writes this step's keys and values, then attends to the whole sequence."""

    def __init__(
        self, backend: Backend, scale: float, window: int | None = None, softcap: float | None = None
    ) -> None:
        super().__init__()
        self._write, self._attend = backend.ops.write_kv, backend.ops.paged_attention
        self.scale, self.window, self.softcap = scale, window, softcap

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, kv_cache: Tensor, metadata: AttentionMetadata
    ) -> Tensor:
        """`q` [tokens, heads, head_dim], `k` and `v` [tokens, kv_heads, head_dim] -> like `q`."""
        self._write(k, v, kv_cache, metadata.slot_mapping)
        return self._attend(q, kv_cache, metadata, self.scale, window=self.window, softcap=self.softcap)
