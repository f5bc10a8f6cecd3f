"""The decoder that the Llama family shares: norm, attention, norm, gated MLP, with residuals.

A family is a subclass of `CausalLM` that sets the facts below; see `llama.py`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import nn

from octavo.layers import (
    Attention,
    Embedding,
    Linear,
    LMHead,
    MergedLinear,
    RMSNorm,
    RotaryEmbedding,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from octavo.layers import Backend
    from octavo.models.config import ModelConfig
    from octavo.ops import AttentionMetadata

    Rotate = Callable[[Tensor, Tensor], None]


class SelfAttention(nn.Module):
    """Grouped-query attention with rotary positions."""

    def __init__(
        self,
        config: ModelConfig,
        backend: Backend,
        layer: int,
        *,
        qkv_bias: bool,
        output_bias: bool,
        qk_norm: bool,
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        wide, narrow = self.heads * self.head_dim, self.kv_heads * self.head_dim
        parts = {"q_proj": wide, "k_proj": narrow, "v_proj": narrow}
        self.qkv = MergedLinear(backend, config.hidden_size, parts, bias=qkv_bias)
        self.o_proj = Linear(backend, wide, config.hidden_size, bias=output_bias)
        self.q_norm = RMSNorm(backend, self.head_dim, config.norm_eps) if qk_norm else None
        self.k_norm = RMSNorm(backend, self.head_dim, config.norm_eps) if qk_norm else None
        self.attention = Attention(backend, config.attention_scale, window=config.windows[layer])

    def forward(
        self,
        x: Tensor,
        rotate: Rotate,
        kv_cache: Tensor,
        metadata: AttentionMetadata,
    ) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]."""
        heads = self.qkv(x).view(x.shape[0], -1, self.head_dim)
        q, k, v = heads.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        rotate(q, k)
        mixed: Tensor = self.attention(q, k, v, kv_cache, metadata)
        result: Tensor = self.o_proj(mixed.flatten(1))
        return result


class GatedMLP(nn.Module):
    """`down(silu(gate(x)) * up(x))`, or with gelu."""

    def __init__(self, config: ModelConfig, backend: Backend) -> None:
        super().__init__()
        parts = {"gate_proj": config.intermediate_size, "up_proj": config.intermediate_size}
        self.gate_up = MergedLinear(backend, config.hidden_size, parts, bias=config.mlp_bias)
        self.down_proj = Linear(backend, config.intermediate_size, config.hidden_size, bias=config.mlp_bias)
        self._activate = {"silu": backend.ops.silu_and_mul, "gelu": backend.ops.gelu_and_mul}[
            config.activation
        ]

    def forward(self, x: Tensor) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]."""
        result: Tensor = self.down_proj(self._activate(self.gate_up(x)))
        return result


class DecoderLayer(nn.Module):
    """One layer. The residual travels beside the activations so that adding and normalising are one op."""

    def __init__(self, config: ModelConfig, backend: Backend, self_attn: nn.Module) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(backend, config.hidden_size, config.norm_eps)
        self.self_attn = self_attn
        self.post_attention_layernorm = RMSNorm(backend, config.hidden_size, config.norm_eps)
        self.mlp = GatedMLP(config, backend)

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
        x = self.self_attn(x, rotate, kv_cache, metadata)
        x, residual = self.post_attention_layernorm.add(x, residual)
        return self.mlp(x), residual


class Decoder(nn.Module):
    """Embeddings, layers and the last norm."""

    def __init__(
        self, config: ModelConfig, backend: Backend, max_model_len: int, layers: list[DecoderLayer]
    ) -> None:
        super().__init__()
        self.embed_tokens = Embedding(backend, config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(layers)
        self.norm = RMSNorm(backend, config.hidden_size, config.norm_eps)
        self._scale = backend.ops.scale
        self.embedding_scale: float | None = None
        self.windows = config.windows
        self.rotary = RotaryEmbedding(backend, config.rope, max_model_len, config.max_position)
        self.local_rotary = self.rotary
        if config.local_rope is not None:
            self.local_rotary = RotaryEmbedding(
                backend, config.local_rope, max_model_len, config.max_position
            )

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        metadata: Sequence[AttentionMetadata],
        kv_caches: Sequence[Tensor],
    ) -> Tensor:
        """Int64 [tokens] ids and positions -> hidden states [tokens, hidden]. Metadata and caches are each
        layer's.
        """
        x: Tensor = self.embed_tokens(tokens)
        if self.embedding_scale is not None:
            x = self._scale(x, self.embedding_scale)
        residual: Tensor | None = None
        rotate, rotate_local = partial(self.rotary, positions), partial(self.local_rotary, positions)
        for layer, window, kv_cache, rows in zip(self.layers, self.windows, kv_caches, metadata, strict=True):
            x, residual = layer(x, residual, rotate if window is None else rotate_local, kv_cache, rows)
        if residual is None:
            residual = torch.zeros_like(x)
        return self.norm.add(x, residual)[0]


class CausalLM(nn.Module):
    """A decoder with a language model head. Attribute names are those of Hugging Face checkpoints."""

    qkv_bias: ClassVar[bool | None] = None
    """Biases on the query, key and value projections; None: as config.json's `attention_bias` says."""
    output_bias: ClassVar[bool | None] = None
    """Bias on the attention's output projection; None: the same."""
    qk_norm: ClassVar[bool] = False
    """RMSNorm on each query and key head before rotation."""

    def __init__(self, config: ModelConfig, backend: Backend, max_model_len: int) -> None:
        super().__init__()
        layers = [self.layer(config, backend, index) for index in range(config.num_layers)]
        self.model = Decoder(config, backend, max_model_len, layers)
        tied = self.model.embed_tokens if config.tie_embeddings else None
        self.lm_head = LMHead(backend, config.vocab_size, config.hidden_size, tied)

    def layer(self, config: ModelConfig, backend: Backend, index: int) -> DecoderLayer:
        """Builds layer `index`; a family with another attention or MLP overrides this."""
        return DecoderLayer(config, backend, self.attention(config, backend, index))

    def attention(self, config: ModelConfig, backend: Backend, index: int) -> SelfAttention:
        """The attention of layer `index`."""
        return SelfAttention(
            config,
            backend,
            index,
            qkv_bias=config.attention_bias if self.qkv_bias is None else self.qkv_bias,
            output_bias=config.attention_bias if self.output_bias is None else self.output_bias,
            qk_norm=self.qk_norm,
        )

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        metadata: Sequence[AttentionMetadata],
        kv_caches: Sequence[Tensor],
    ) -> Tensor:
        """Int64 [tokens] ids and positions -> hidden states [tokens, hidden]. Metadata and caches are each
        layer's.
        """
        hidden: Tensor = self.model(tokens, positions, metadata, kv_caches)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, hidden] -> float32 [rows, vocab]."""
        logits: Tensor = self.lm_head(hidden)
        return logits
