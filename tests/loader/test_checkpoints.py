"""Checkpoints on disk: what is read, and what is said when they are wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from octavo import ops
from octavo.layers import Backend, checkpoint_slots
from octavo.loader import CheckpointError, fill, fill_dummy, open_checkpoint
from octavo.loader.gguf import paired_to_half_rows
from octavo.models import ModelConfig, UnsupportedModelError, create_model

if TYPE_CHECKING:
    from pathlib import Path

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
}


def tensors(**changes: Any) -> dict[str, Tensor]:
    """Random tensors of every name that the config asks for."""
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(slot.shape, generator=generator)
        for name, slot in checkpoint_slots(build(CONFIG | changes)).items()
    }


def build(config: dict[str, Any]) -> Any:
    backend = Backend(torch.device("cpu"), torch.float32, ops.torch_ops)
    return create_model(ModelConfig.from_hf(config), backend, 128)


def write(folder: Path, weights: dict[str, Tensor], config: dict[str, Any] = CONFIG) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights, folder / "model.safetensors")
    return folder


def filled(path: Path) -> dict[str, Tensor]:
    checkpoint = open_checkpoint(str(path))
    slots = checkpoint_slots(build(checkpoint.config))
    fill(slots, checkpoint, lambda *_: None)
    return slots


def assert_same(slots: dict[str, Tensor], weights: dict[str, Tensor]) -> None:
    assert slots.keys() == weights.keys()
    for name, slot in slots.items():
        assert torch.equal(slot, weights[name]), name


def test_one_file(tmp_path: Path) -> None:
    weights = tensors()
    assert_same(filled(write(tmp_path, weights)), weights)


def test_shards(tmp_path: Path) -> None:
    weights = tensors()
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    names = sorted(weights)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in parts.items():
        save_file({name: weights[name] for name in part}, tmp_path / file)
    index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert_same(filled(tmp_path), weights)


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(str(write(tmp_path, tensors())))
    calls: list[tuple[str, int, int]] = []
    fill(checkpoint_slots(build(CONFIG)), checkpoint, lambda *call: calls.append(call))
    assert calls[0][1] == 0
    assert calls[-1][1] == calls[-1][2] > 0


def test_tied_embeddings_need_no_head(tmp_path: Path) -> None:
    tied = CONFIG | {"tie_word_embeddings": True}
    weights = tensors(tie_word_embeddings=True)
    assert "lm_head.weight" not in weights
    slots = filled(write(tmp_path, weights | {"lm_head.weight": torch.zeros(64, 32)}, tied))
    assert_same(slots, weights)


def test_everything_wrong_is_listed_at_once(tmp_path: Path) -> None:
    weights = tensors()
    del weights["model.norm.weight"]
    weights["model.layers.1.self_attn.q_proj.weight"] = torch.zeros(16, 32)
    weights["model.layers.0.mlp.router.weight"] = torch.zeros(4)
    with pytest.raises(CheckpointError) as caught:
        filled(write(tmp_path, weights))
    message = str(caught.value)
    assert "missing: model.norm.weight" in message
    assert "unexpected: model.layers.0.mlp.router.weight" in message
    assert "model.layers.1.self_attn.q_proj.weight is [16, 32], the model needs [32, 32]" in message


def test_a_truncated_file(tmp_path: Path) -> None:
    write(tmp_path, tensors())
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="is the download complete"):
        filled(tmp_path)


@pytest.mark.parametrize("outside", ["../secret.safetensors", "/etc/passwd"])
def test_an_index_cannot_name_files_outside_the_folder(tmp_path: Path, outside: str) -> None:
    write(tmp_path, tensors())
    index = {"weight_map": {"model.norm.weight": outside}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="outside the folder"):
        filled(tmp_path)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is no model at"):
        open_checkpoint(str(tmp_path / "absent"))
    with pytest.raises(CheckpointError, match=r"neither config\.json nor a \.gguf file"):
        open_checkpoint(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(CheckpointError, match=r"no \.safetensors files"):
        filled(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="cannot read"):
        open_checkpoint(str(tmp_path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"architectures": ["RobertaModel"]},
            "RobertaModel.*supported are Gemma3ForCausalLM",
        ),
        ({"architectures": None}, "no `architectures`"),
        ({"hidden_size": "big"}, "hidden_size is 'big', expected a whole number"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
        ({"vocab_size": None}, "lacks vocab_size"),
        ({"num_key_value_heads": 3}, "not a multiple of num_key_value_heads"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported"),
        ({"rope_scaling": {"type": "spiral"}}, "rope type 'spiral' is not supported"),
        ({"rope_scaling": {"type": "linear"}}, "needs 'factor'"),
        ({"sliding_window": -1}, "sliding_window is -1"),
        ({"sliding_window": 4, "layer_types": ["chunked_attention"] * 2}, "chunked_attention"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantised with 'awq'"),
    ],
)
def test_a_config_that_cannot_be_served(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        build(CONFIG | change)


def test_dummy_weights_are_seeded() -> None:
    first, second, other = (checkpoint_slots(build(CONFIG)) for _ in range(3))
    for slots, seed in ((first, 1), (second, 1), (other, 2)):
        fill_dummy(slots, seed, lambda *_: None)
    assert_same(first, second)
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(path: Path, architecture: str, config: dict[str, Any], weights: dict[str, Tensor]) -> None:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(10000.0)
    for name, tensor in weights.items():
        stem, _, kind = name.rpartition(".")
        prefix = ""
        if stem.startswith("model.layers."):
            _, _, layer, stem = stem.split(".", 3)
            prefix = f"blk.{layer}."
        data = tensor.numpy()
        if architecture == "llama" and GGUF_NAMES[stem] in {"attn_q", "attn_k"}:
            heads = config["num_attention_heads" if GGUF_NAMES[stem] == "attn_q" else "num_key_value_heads"]
            data = data.reshape(heads, 2, -1, *data.shape[1:]).swapaxes(1, 2).reshape(data.shape)
        writer.add_tensor(f"{prefix}{GGUF_NAMES[stem]}.{kind}", np.ascontiguousarray(data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(
    ("architecture", "name", "change"),
    [
        ("llama", "LlamaForCausalLM", {}),
        ("llama", "LlamaForCausalLM", {"tie_word_embeddings": True}),
        ("qwen2", "Qwen2ForCausalLM", {}),
        ("qwen3", "Qwen3ForCausalLM", {}),
    ],
)
def test_gguf_gives_the_same_tensors(
    architecture: str, name: str, change: dict[str, Any], tmp_path: Path
) -> None:
    change |= {"architectures": [name]}
    weights = tensors(**change)
    path = tmp_path / "model.gguf"
    write_gguf(path, architecture, CONFIG, weights)
    assert_same(filled(path), weights)
    parsed = ModelConfig.from_hf(open_checkpoint(str(path)).config)
    expected = ModelConfig.from_hf(CONFIG | change)
    assert parsed.architecture == name
    for field in ("num_layers", "num_kv_heads", "head_dim", "max_position", "tie_embeddings", "rope"):
        assert getattr(parsed, field) == getattr(expected, field), field


def test_a_folder_with_one_gguf_file(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", "llama", CONFIG, tensors())
    assert open_checkpoint(str(tmp_path)).path.endswith("model.gguf")
    with pytest.raises(CheckpointError, match="not a folder of safetensors"):
        open_checkpoint(str(tmp_path / "model.gguf"), "safetensors")
    write_gguf(tmp_path / "other.gguf", "llama", CONFIG, tensors())
    with pytest.raises(CheckpointError, match=r"holds 2 \.gguf files"):
        open_checkpoint(str(tmp_path))


def test_a_gguf_file_of_an_unknown_architecture(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", "rwkv", CONFIG, tensors())
    with pytest.raises(CheckpointError, match="'rwkv'; supported in GGUF files are gemma3, llama"):
        open_checkpoint(str(tmp_path / "model.gguf"))


def test_a_gguf_file_whose_layers_differ(tmp_path: Path) -> None:
    heads = [CONFIG["num_attention_heads"]] * CONFIG["num_hidden_layers"]
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_head_count(heads)
    writer.add_tensor("token_embd.weight", np.zeros((4, 4), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(CheckpointError, match=r"a value for each layer in llama\.attention\.head_count;"):
        open_checkpoint(str(tmp_path / "model.gguf"))


def test_a_broken_gguf_file(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + bytes(40))
    with pytest.raises(CheckpointError):
        open_checkpoint(str(path))


def test_rotary_pairs_are_put_half_a_head_apart() -> None:
    assert paired_to_half_rows(8, 2).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
