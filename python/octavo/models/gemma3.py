"""Gemma 3, text only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from octavo.layers import OffsetRMSNorm
from octavo.models.decoder import CausalLM, DecoderLayer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from octavo.layers import Backend
    from octavo.models.config import ModelConfig
    from octavo.models.decoder import Rotate
    from octavo.ops import AttentionMetadata


class Gemma3Layer(DecoderLayer):
    """Attention and MLP have a norm before and one after."""

    def __init__(self, config: ModelConfig, backend: Backend, self_attn: nn.Module) -> None:
        super().__init__(config, backend, self_attn)
        features, eps = config.hidden_size, config.norm_eps
        self.input_layernorm = OffsetRMSNorm(backend, features, eps)
        self.post_attention_layernorm = OffsetRMSNorm(backend, features, eps)
        self.pre_feedforward_layernorm = OffsetRMSNorm(backend, features, eps)
        self.post_feedforward_layernorm = OffsetRMSNorm(backend, features, eps)

    def forward(
        self,
        x: Tensor,
        residual: Tensor | None,
        rotate: Rotate,
        kv_cache: Tensor,
        metadata: AttentionMetadata,
    ) -> tuple[Tensor, Tensor]:
        """Returns (what the MLP adds, residual)."""
        if residual is None:
            x, residual = self.input_layernorm(x), x
        else:
            x, residual = self.input_layernorm.add(x, residual)
        x = self.post_attention_layernorm(self.self_attn(x, rotate, kv_cache, metadata))
        x, residual = self.pre_feedforward_layernorm.add(x, residual)
        return self.post_feedforward_layernorm(self.mlp(x)), residual


class Gemma3(CausalLM):
    """Most layers have a sliding window and rotary positions of their own."""

    qk_norm = True

    def __init__(self, config: ModelConfig, backend: Backend, max_model_len: int) -> None:
        super().__init__(config, backend, max_model_len)
        self.model.norm = OffsetRMSNorm(backend, config.hidden_size, config.norm_eps)
        self.model.embedding_scale = torch.tensor(config.hidden_size**0.5, dtype=backend.dtype).item()

    def layer(self, config: ModelConfig, backend: Backend, index: int) -> Gemma3Layer:
        """Builds layer `index`."""
        attention = self.attention(config, backend, index)
        attention.q_norm = OffsetRMSNorm(backend, config.head_dim, config.norm_eps)
        attention.k_norm = OffsetRMSNorm(backend, config.head_dim, config.norm_eps)
        return Gemma3Layer(config, backend, attention)


MODEL = Gemma3
