"""A GGUF file, in the terms of Hugging Face checkpoints: config keys, tensor names, order of rows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from octavo import _core
from octavo.loader.checkpoint import CheckpointError
from octavo.quantization.blocks import KERNEL_FORMATS, Blocks
from octavo.quantization.gguf import FORMATS, dequantize

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

    from octavo.quantization.gguf import Bytes

_ARCHITECTURES = {
    "gemma3": "Gemma3ForCausalLM",
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
"""`general.architecture` -> the name in config.json."""

_PERMUTED = frozenset({"llama"})
"""Architectures whose query and key rows are stored in pairs (0, half), (1, half + 1), ... of each head."""

_ONE_ADDED = frozenset({"gemma3"})
"""Architectures whose norms are stored with the one added that the model adds to them."""

_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}

_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

_LAYER_OF = {
    "gemma3": {
        "ffn_norm": "pre_feedforward_layernorm",
        "post_attention_norm": "post_attention_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    },
}
"""Where an architecture differs from that."""

_ROPE_FACTORS = "rope_freqs.weight"

_ROW_A_WEIGHT = frozenset({"F32", "F16", "BF16"})
"""Types whose vectors can be cut anywhere."""

_NAME = re.compile(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)")


class GGUFFile:
    """Tensors are mapped into memory and decoded when asked for."""

    def __init__(self, path: Path) -> None:
        """Raises `CheckpointError` for a file that is damaged or holds another kind of model."""
        self.path, self.method = str(path), "gguf"
        try:
            self._metadata, table = _core.read_gguf(path)
        except (OSError, ValueError) as error:
            raise CheckpointError(str(error)) from None
        self._check_types(table)
        architecture = str(self._metadata.get("general.architecture"))
        self._tensors = {hf_name(entry[0], architecture): entry[1:] for entry in table}
        self._bytes = np.memmap(path, np.uint8, "r")
        self.config = self._read_config()

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Every tensor's shape by its Hugging Face name."""
        return {name: tuple(entry[1]) for name, entry in self._tensors.items() if name != _ROPE_FACTORS}

    def read(self, name: str) -> Tensor:
        """One tensor in float32, rows in Hugging Face's order."""
        type_name, shape, *_ = self._tensors[name]
        tensor = torch.from_numpy(dequantize(self._rows(name), type_name)).view(*shape)
        has_one = self._metadata["general.architecture"] in _ONE_ADDED and name.endswith("norm.weight")
        return tensor - 1.0 if has_one else tensor

    def spare(self, name: str) -> bool:
        """Never."""
        return False

    def block_bytes(self, name: str) -> int | None:
        """Bytes of a matrix of blocks that kernels know; None for other tensors."""
        type_name, shape, _, length = self._tensors.get(name, ("", (), 0, 0))
        return length if type_name in KERNEL_FORMATS and len(shape) > 1 else None

    def read_blocks(self, name: str) -> Blocks:
        """One matrix as it is in the file, rows in Hugging Face's order."""
        return Blocks(self._rows(name), self._tensors[name][0])

    def _rows(self, name: str) -> Bytes:
        """A tensor's bytes by row, rows in Hugging Face's order; where that is the file's, a view of it."""
        type_name, shape, offset, length = self._tensors[name]
        rows = shape[0] if len(shape) > 1 or type_name in _ROW_A_WEIGHT else 1
        data = self._bytes[offset : offset + length].reshape(rows, -1)
        heads = self._heads_of(name)
        return data if heads is None else data[paired_to_half_rows(rows, heads)]

    def _heads_of(self, name: str) -> int | None:
        """Heads whose rows must be put in order, or None."""
        if self._metadata["general.architecture"] not in _PERMUTED:
            return None
        if ".q_proj." in name:
            return int(self.config["num_attention_heads"])
        return int(self.config["num_key_value_heads"]) if ".k_proj." in name else None

    def _check_types(self, table: list[tuple[str, str, list[int], int, int]]) -> None:
        unknown = sorted({type_name for _, type_name, *_ in table if type_name not in FORMATS})
        if unknown:
            raise CheckpointError(
                f"{self.path} holds tensors of type {', '.join(unknown)}; supported are {', '.join(FORMATS)}"
            )

    def _read_config(self) -> dict[str, Any]:
        config = hf_config(self._metadata, self.path)
        embedding = self._tensors.get("model.embed_tokens.weight")
        if embedding is None:
            raise CheckpointError(f"{self.path} has no token_embd.weight: it holds a vocabulary, not a model")
        config["vocab_size"] = embedding[1][0]
        config["tie_word_embeddings"] = "lm_head.weight" not in self._tensors
        if _ROPE_FACTORS in self._tensors:
            config["rope_parameters"]["frequency_factors"] = self.read(_ROPE_FACTORS).tolist()
        return config


def hf_name(name: str, architecture: str = "llama") -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`; unknown names stay as they are."""
    match = _NAME.fullmatch(name)
    if match is None:
        return name
    layer, stem, kind = match.groups()
    if layer is None:
        return f"{_TOP[stem]}.{kind}" if stem in _TOP else name
    stems = _LAYER | _LAYER_OF.get(architecture, {})
    return f"model.layers.{layer}.{stems[stem]}.{kind}" if stem in stems else name


def paired_to_half_rows(rows: int, heads: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Indexes that take rows stored as (0, half), (1, half + 1), ... of each head to 0, 1, 2, ...

    Rotary pairs lie side by side in such files, and half a head apart in Hugging Face's order.
    """
    return np.arange(rows).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)


def hf_config(metadata: Mapping[str, Any], path: str) -> dict[str, Any]:
    """GGUF metadata in the terms of config.json, without what only the tensors tell."""
    architecture = metadata.get("general.architecture")
    if architecture not in _ARCHITECTURES:
        raise CheckpointError(
            f"{path} holds a model of architecture {architecture!r}; "
            f"supported in GGUF files are {', '.join(_ARCHITECTURES)}"
        )

    def get(key: str, default: Any = None) -> Any:
        return metadata.get(f"{architecture}.{key}", default)

    if get("expert_count", 0):
        raise CheckpointError(f"{path} holds a mixture of experts, which is not supported in GGUF files yet")
    keys = {
        "hidden_size": "embedding_length",
        "intermediate_size": "feed_forward_length",
        "num_hidden_layers": "block_count",
        "num_attention_heads": "attention.head_count",
        "num_key_value_heads": "attention.head_count_kv",
        "head_dim": "attention.key_length",
        "max_position_embeddings": "context_length",
        "rms_norm_eps": "attention.layer_norm_rms_epsilon",
        "sliding_window": "attention.sliding_window",
    }
    config = {name: get(key) for name, key in keys.items()}
    by_layer = [keys[name] for name, value in config.items() if isinstance(value, list)]
    if by_layer:
        raise CheckpointError(
            f"{path} has a value for each layer in {', '.join(f'{architecture}.{key}' for key in by_layer)}; "
            "models whose layers differ are not supported"
        )
    needed = [keys[name] for name in keys if name not in _OPTIONAL and config[name] is None]
    if needed:
        raise CheckpointError(
            f"{path} lacks the metadata {', '.join(f'{architecture}.{key}' for key in needed)}"
        )
    config["num_key_value_heads"] = config["num_key_value_heads"] or config["num_attention_heads"]
    config["architectures"] = [_ARCHITECTURES[architecture]]
    config["rope_parameters"] = _rope(get)
    rotary_dim = get("rope.dimension_count")
    head_dim = config["head_dim"] or config["hidden_size"] // max(config["num_attention_heads"], 1)
    if architecture == "gemma3":
        config |= _gemma3(config, get)
    if rotary_dim is not None and head_dim:
        config["partial_rotary_factor"] = rotary_dim / head_dim
    return config


_GEMMA3_27B_LAYERS = 62


def _gemma3(config: Mapping[str, Any], get: Any) -> dict[str, Any]:
    """What the metadata tell in other ways, or leave to the reader."""
    per_head = config["hidden_size"] // max(config["num_attention_heads"], 1)
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "rope_local_base_freq": get("rope.freq_base_swa", 10000.0),
        "query_pre_attn_scalar": per_head
        if config["num_hidden_layers"] == _GEMMA3_27B_LAYERS
        else config["head_dim"],
    }


_OPTIONAL = frozenset({"num_key_value_heads", "head_dim", "sliding_window", "rms_norm_eps"})


def _rope(get: Any) -> dict[str, Any]:
    rope = {
        "rope_theta": get("rope.freq_base", 10000.0),
        "rope_type": {None: "default", "none": "default"}.get(kind := get("rope.scaling.type"), kind),
        "factor": get("rope.scaling.factor"),
        "original_max_position_embeddings": get("rope.scaling.original_context_length"),
    }
    return {name: value for name, value in rope.items() if value is not None}
