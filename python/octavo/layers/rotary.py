"""Rotary position embeddings and the ways to stretch them.

Sources: Su et al. 2021 (rotary), bloc97 2023 (NTK-aware), Peng et al. 2023 (YaRN), Ding et al. 2024
(LongRoPE); the llama3 rule is that of Llama 3.1's release.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from octavo.layers.backend import Backend


@dataclass(frozen=True)
class RopeConfig:
    """How positions become angles."""

    theta: float
    rotary_dim: int
    kind: str = "default"
    """One of `ROPE_KINDS`."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """The checkpoint's own numbers for `kind`, by their names in config.json."""
    frequency_factors: tuple[float, ...] | None = None
    """Divide the frequencies, where the checkpoint stores them (GGUF `rope_freqs`)."""
    interleaved: bool = False


class RotaryEmbedding(nn.Module):
    """Rotates queries and keys in place. One instance serves all layers."""

    def __init__(self, backend: Backend, config: RopeConfig, max_model_len: int, max_position: int) -> None:
        """`max_model_len` positions are prepared; `max_position` is the length that the model was trained
        for.
        """
        super().__init__()
        self._op = backend.ops.rotary
        self.interleaved = config.interleaved
        frequencies, scale = ROPE_KINDS[config.kind](config, max_model_len, max_position)
        if config.frequency_factors is not None:
            frequencies = frequencies / torch.tensor(config.frequency_factors, dtype=torch.float64)
        # In float32, as every other implementation has it: the model was trained with those roundings.
        angles = torch.outer(torch.arange(max_model_len, dtype=torch.float32), frequencies.float())
        cache = torch.cat((angles.cos() * scale, angles.sin() * scale), dim=-1)
        self.cos_sin_cache = cache.to(backend.device)

    def forward(self, positions: Tensor, q: Tensor, k: Tensor) -> None:
        """`positions` int64 [tokens]; `q`, `k` [tokens, heads, head_dim]."""
        self._op(positions, q, k, self.cos_sin_cache, interleaved=self.interleaved)


def _base_frequencies(theta: float, dim: int) -> Tensor:
    return theta ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)


def _default(config: RopeConfig, _max_len: int, _max_position: int) -> tuple[Tensor, float]:
    return _base_frequencies(config.theta, config.rotary_dim), 1.0


def _linear(config: RopeConfig, _max_len: int, _max_position: int) -> tuple[Tensor, float]:
    return _base_frequencies(config.theta, config.rotary_dim) / config.parameters["factor"], 1.0


def _dynamic(config: RopeConfig, max_len: int, max_position: int) -> tuple[Tensor, float]:
    """NTK-aware scaling for the longest sequence served; none where that is within the trained length.

    Keys in paged memory are rotated once, so the scale cannot follow the length of each sequence.
    """
    original = config.parameters.get("original_max_position_embeddings", max_position)
    factor, dim = config.parameters["factor"], config.rotary_dim
    stretch = max(1.0, factor * max_len / original - (factor - 1))
    return _base_frequencies(config.theta * stretch ** (dim / (dim - 2)), dim), 1.0


def _llama3(config: RopeConfig, _max_len: int, max_position: int) -> tuple[Tensor, float]:
    parameters = config.parameters
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    original = parameters.get("original_max_position_embeddings", max_position)
    frequencies = _base_frequencies(config.theta, config.rotary_dim)
    turns = original * frequencies / (2 * math.pi)
    keep = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return keep * frequencies + (1 - keep) * frequencies / parameters["factor"], 1.0


def _yarn(config: RopeConfig, _max_len: int, max_position: int) -> tuple[Tensor, float]:
    parameters, dim = config.parameters, config.rotary_dim
    original = parameters.get("original_max_position_embeddings") or max_position
    factor = parameters.get("factor") or max_position / original

    def dimension_of(turns: float) -> float:
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(config.theta))

    low = dimension_of(parameters.get("beta_fast") or 32)
    high = dimension_of(parameters.get("beta_slow") or 1)
    if parameters.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    span = max(high - low, 1e-3)
    stretch = ((torch.arange(dim // 2, dtype=torch.float64) - low) / span).clamp(0.0, 1.0)
    frequencies = _base_frequencies(config.theta, dim)
    frequencies = frequencies / factor * stretch + frequencies * (1 - stretch)
    return frequencies, _yarn_scale(parameters, factor)


def _yarn_scale(parameters: Mapping[str, Any], factor: float) -> float:
    if (given := parameters.get("attention_factor")) is not None:
        return float(given)

    def magnitude(mscale: float) -> float:
        return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0

    mscale, all_dim = parameters.get("mscale"), parameters.get("mscale_all_dim")
    return magnitude(mscale) / magnitude(all_dim) if mscale and all_dim else magnitude(1.0)


def _longrope(config: RopeConfig, max_len: int, max_position: int) -> tuple[Tensor, float]:
    """The short factors where no sequence is longer than the trained length, else the long ones."""
    parameters = config.parameters
    original = parameters.get("original_max_position_embeddings") or max_position
    factors = parameters["long_factor" if max_len > original else "short_factor"]
    frequencies = _base_frequencies(config.theta, config.rotary_dim)
    frequencies = frequencies / torch.tensor(factors, dtype=torch.float64)
    if (given := parameters.get("attention_factor")) is not None:
        return frequencies, float(given)
    factor = max_position / original if max_position > original else parameters.get("factor", 1.0)
    return frequencies, math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0


ROPE_KINDS: dict[str, Callable[[RopeConfig, int, int], tuple[Tensor, float]]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
"""Rope type of config.json -> (frequencies float64 [rotary_dim / 2], factor on cosines and sines)."""
