"""What a model is: its shape, read from config.json (or from GGUF metadata put in the same terms)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.layers.rotary import ROPE_KINDS, RopeConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

_LIMITS = {
    "vocab_size": 1 << 24,
    "hidden_size": 1 << 20,
    "intermediate_size": 1 << 22,
    "num_hidden_layers": 1 << 12,
    "num_attention_heads": 1 << 12,
    "num_key_value_heads": 1 << 12,
    "head_dim": 1 << 12,
    "max_position_embeddings": 1 << 27,
}


class UnsupportedModelError(ValueError):
    """The model is of a kind that Octavo cannot compute, or its config contradicts itself."""


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a decoder."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position: int
    """Longest sequence that the model was made for, tokens."""
    norm_eps: float
    rope: RopeConfig
    local_rope: RopeConfig | None
    """Of layers with a window, where it is another."""
    attention_scale: float
    """What scores are multiplied by."""
    activation: str
    """Of the MLP's gate: "silu", or "gelu" (its approximation with tanh)."""
    windows: tuple[int | None, ...]
    """Of each layer: the sliding window in tokens, None for full attention."""
    attention_bias: bool
    mlp_bias: bool
    tie_embeddings: bool
    dtype: str | None
    """The checkpoint's own: "float32", "bfloat16", "float16", or None where it does not say."""

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> ModelConfig:
        """From the content of config.json. Raises `UnsupportedModelError`, naming the key at fault."""
        architectures = config.get("architectures") or [None]
        if not isinstance(architectures, list) or not isinstance(architectures[0], str):
            raise UnsupportedModelError(
                "config.json has no `architectures`: it does not say what model this is"
            )
        config = {**_LEFT_OUT.get(architectures[0], {}), **config}
        quantization = config.get("quantization_config")
        if quantization:
            method = quantization.get("quant_method") if isinstance(quantization, dict) else quantization
            raise UnsupportedModelError(
                f"the checkpoint is quantised with {method!r}; supported are float checkpoints and GGUF files"
            )
        numbers = {name: _integer(config, name) for name in _LIMITS if config.get(name) is not None}
        missing = [name for name in _LIMITS if name not in numbers and name not in _OPTIONAL]
        if missing:
            raise UnsupportedModelError(f"config.json lacks {', '.join(missing)}")
        hidden, heads = numbers["hidden_size"], numbers["num_attention_heads"]
        kv_heads = numbers.get("num_key_value_heads", heads)
        if heads % kv_heads:
            raise UnsupportedModelError(
                f"num_attention_heads ({heads}) is not a multiple of num_key_value_heads ({kv_heads})"
            )
        head_dim = numbers.get("head_dim", hidden // heads)
        activation = config.get("hidden_activation") or config.get("hidden_act", "silu")
        if activation not in _ACTIVATIONS:
            supported = ", ".join(map(repr, _ACTIVATIONS))
            raise UnsupportedModelError(
                f"hidden_act {activation!r} is not supported; supported are {supported}"
            )
        for name in ("final_logit_softcapping", "attn_logit_softcapping", "use_bidirectional_attention"):
            if config.get(name):
                raise UnsupportedModelError(f"config.json: {name} is not supported")
        rope, local_rope = _ropes(config, head_dim)
        return cls(
            architecture=architectures[0],
            vocab_size=numbers["vocab_size"],
            hidden_size=hidden,
            intermediate_size=numbers["intermediate_size"],
            num_layers=numbers["num_hidden_layers"],
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            max_position=numbers["max_position_embeddings"],
            norm_eps=_number(config, "rms_norm_eps", 1e-6),
            rope=rope,
            local_rope=local_rope,
            attention_scale=(_number(config, "query_pre_attn_scalar", head_dim) or head_dim) ** -0.5,
            activation=_ACTIVATIONS[activation],
            windows=_windows(config, numbers["num_hidden_layers"]),
            attention_bias=bool(config.get("attention_bias", False)),
            mlp_bias=bool(config.get("mlp_bias", False)),
            tie_embeddings=bool(config.get("tie_word_embeddings", False)),
            dtype=config.get("dtype") or config.get("torch_dtype"),
        )


_OPTIONAL = frozenset({"num_key_value_heads", "head_dim"})

_ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu"}

_LEFT_OUT: dict[str, dict[str, Any]] = {
    "Gemma3ForCausalLM": {
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131072,
        "hidden_activation": "gelu_pytorch_tanh",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
        "tie_word_embeddings": True,
    },
}
"""What a family's config.json may leave out, and what it means then."""


def _integer(config: Mapping[str, Any], name: str) -> int:
    value = config[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _LIMITS[name]:
        raise UnsupportedModelError(
            f"config.json: {name} is {value!r}, expected a whole number from 1 to {_LIMITS[name]}"
        )
    return value


def _number(config: Mapping[str, Any], name: str, default: float) -> float:
    value = config.get(name)
    if value is None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise UnsupportedModelError(
            f"config.json: {name} is {value!r}, expected a number that is not negative"
        )
    return float(value)


def _ropes(config: Mapping[str, Any], head_dim: int) -> tuple[RopeConfig, RopeConfig | None]:
    """That of all layers, or of full attention and of windows."""
    by_kind = config.get("rope_parameters")
    if isinstance(by_kind, dict) and "full_attention" in by_kind:
        full, local = (
            _rope({**config, "rope_parameters": by_kind.get(kind), "rope_theta": theta}, head_dim)
            for kind, theta in (
                ("full_attention", config.get("rope_theta", 10000.0)),
                ("sliding_attention", config.get("rope_local_base_freq", 10000.0)),
            )
        )
        return full, local
    theta = config.get("rope_local_base_freq")
    plain = {"rope_theta": theta, "partial_rotary_factor": config.get("partial_rotary_factor", 1.0)}
    return _rope(config, head_dim), None if theta is None else _rope(plain, head_dim)


def _rope(config: Mapping[str, Any], head_dim: int) -> RopeConfig:
    """Reads `rope_parameters` (newer) or `rope_theta` and `rope_scaling` (older)."""
    parameters = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(parameters, dict):
        raise UnsupportedModelError(f"config.json: rope parameters are {parameters!r}, expected an object")
    parameters = dict(parameters)
    kind = parameters.pop("rope_type", None) or parameters.pop("type", None) or "default"
    if kind not in ROPE_KINDS:
        raise UnsupportedModelError(
            f"config.json: rope type {kind!r} is not supported; supported are {', '.join(ROPE_KINDS)}"
        )
    theta = parameters.pop("rope_theta", None) or config.get("rope_theta", 10000.0)
    if not isinstance(theta, int | float) or not 0 < theta < math.inf:
        raise UnsupportedModelError(f"config.json: rope_theta is {theta!r}, expected a number above 0")
    partial = parameters.pop("partial_rotary_factor", None) or config.get("partial_rotary_factor", 1.0)
    original = config.get("original_max_position_embeddings")
    if original is not None:
        parameters.setdefault("original_max_position_embeddings", original)
    needed = {"linear": ["factor"], "dynamic": ["factor"], "longrope": ["short_factor", "long_factor"]}
    needed["llama3"] = ["factor", "low_freq_factor", "high_freq_factor"]
    for name in needed.get(kind, []):
        if name not in parameters:
            raise UnsupportedModelError(f"config.json: rope type {kind!r} needs {name!r}")
    factors = parameters.pop("frequency_factors", None)
    rotary_dim = int(head_dim * partial)
    if rotary_dim < 2 or rotary_dim % 2 or rotary_dim > head_dim:
        raise UnsupportedModelError(
            f"config.json: rotary dimension {rotary_dim} does not fit heads of {head_dim}"
        )
    if factors is not None and len(factors) != rotary_dim // 2:
        raise UnsupportedModelError(f"{len(factors)} rope frequency factors, expected {rotary_dim // 2}")
    return RopeConfig(
        theta=float(theta),
        rotary_dim=rotary_dim,
        kind=kind,
        parameters=parameters,
        frequency_factors=None if factors is None else tuple(factors),
    )


def _windows(config: Mapping[str, Any], layers: int) -> tuple[int | None, ...]:
    window = config.get("sliding_window")
    if window is None or config.get("use_sliding_window") is False:
        return (None,) * layers
    if not isinstance(window, int) or window < 1:
        raise UnsupportedModelError(f"config.json: sliding_window is {window!r}, expected a number of tokens")
    kinds = config.get("layer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != layers:
            raise UnsupportedModelError(f"config.json: layer_types must list {layers} layers")
        unknown = sorted(set(kinds) - {"full_attention", "sliding_attention"})
        if unknown:
            raise UnsupportedModelError(f"config.json: layer_types {unknown} are not supported")
        return tuple(window if kind == "sliding_attention" else None for kind in kinds)
    pattern = config.get("sliding_window_pattern")
    if pattern is not None:
        if not isinstance(pattern, int) or pattern < 1:
            raise UnsupportedModelError(f"config.json: sliding_window_pattern is {pattern!r}")
        return tuple(window if (layer + 1) % pattern else None for layer in range(layers))
    first = config.get("max_window_layers", 0)
    return tuple(window if layer >= first else None for layer in range(layers))
