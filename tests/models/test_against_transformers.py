"""Each family, with random weights, against the same model in transformers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
import transformers
from paged import load, logits_in_chunks

from octavo.ops.cpu_program import CpuForward, record

if TYPE_CHECKING:
    from pathlib import Path

SMALL = {
    "vocab_size": 300,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.1, 1.2, 1.3],
    "long_factor": [1.0, 1.5, 2.0, 4.0],
    "original_max_position_embeddings": 64,
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama tied": ("Llama", {"tie_word_embeddings": True}),
    "llama biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama head_dim": ("Llama", {"head_dim": 32}),
    "llama multi-head": ("Llama", {"num_key_value_heads": 6}),
    "llama rope linear": (
        "Llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    ),
    "llama rope llama3": ("Llama", {"rope_parameters": LLAMA3}),
    "llama rope yarn": ("Llama", {"rope_parameters": YARN}),
    "llama rope longrope": ("Llama", {"rope_parameters": LONG}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "mistral window": ("Mistral", {"sliding_window": 11, "head_dim": 16}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2 window": ("Qwen2", {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "gemma3": ("Gemma3", {"head_dim": 16, "sliding_window": 12, "query_pre_attn_scalar": 20}),
    "gemma3 rope": (
        "Gemma3",
        {
            "num_hidden_layers": 7,
            "head_dim": 8,
            "sliding_window": 30,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 8.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
            },
        },
    ),
    "qwen3 bias": ("Qwen3", {"head_dim": 8, "attention_bias": True}),
}


def reference(family: str) -> Any:
    name, options = FAMILIES[family]
    torch.manual_seed(0)
    config_class = {"Gemma3": "Gemma3TextConfig"}.get(name, f"{name}Config")
    config = getattr(transformers, config_class)(**SMALL | options)
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:  # norms and biases start as ones and zeros
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("family", [family for family in FAMILIES if "longrope" not in family])
def test_logits(family: str, tmp_path: Path) -> None:
    model = reference(family)
    model.save_pretrained(tmp_path)
    config, ours = load(tmp_path, max_model_len=200)
    generator = torch.Generator().manual_seed(2)
    sequences = [torch.randint(0, 300, (length,), generator=generator) for length in (75, 1, 40, 23)]
    logits = logits_in_chunks(config, ours, sequences, [7, 1, 16, 3, 13, 1, 29])
    with torch.no_grad():
        for sequence, actual in zip(sequences, logits, strict=True):
            expected = model(sequence.unsqueeze(0)).logits[0]
            difference = float((actual - expected).abs().max())
            assert difference < 2e-4 * max(1.0, float(expected.abs().max())), difference


@pytest.mark.parametrize("family", FAMILIES)
def test_a_recorded_pass_has_the_same_bits(family: str, tmp_path: Path) -> None:
    """On steps of other sizes than the recorded one."""
    reference(family).save_pretrained(tmp_path)
    config, ours = load(tmp_path, max_model_len=200)
    generator = torch.Generator().manual_seed(3)
    sequences = [torch.randint(0, 300, (length,), generator=generator) for length in (75, 1, 40, 23)]
    chunks = [7, 1, 16, 3, 13, 1, 29]
    expected = logits_in_chunks(config, ours, sequences, chunks)
    again = logits_in_chunks(config, ours, sequences, chunks, bind=CpuForward)
    for sequence, logits in zip(expected, again, strict=True):
        assert torch.equal(sequence, logits)


def test_what_torch_computes_is_not_recorded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A pass with an op of torch's own runs op by op, and the log names the op."""
    reference("llama").save_pretrained(tmp_path)
    config, ours = load(tmp_path, max_model_len=200)
    plain = ours.model.layers[1].mlp.forward
    ours.model.layers[1].mlp.forward = lambda x: plain(x).mul_(2)
    sequences = [torch.arange(9), torch.arange(5)]
    with pytest.raises(ValueError, match=r"aten\.mul_"):
        logits_in_chunks(config, ours, sequences, [4], bind=CpuForward)
    expected = logits_in_chunks(config, ours, sequences, [4])
    with caplog.at_level("INFO", logger="octavo"):
        actual = logits_in_chunks(config, ours, sequences, [4], bind=record)
    assert "aten.mul_" in caplog.text
    assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))


@pytest.mark.parametrize(("max_model_len", "length"), [(64, 50), (200, 90)])
def test_longrope(max_model_len: int, length: int, tmp_path: Path) -> None:
    """Short factors where every sequence fits the trained length, else long ones."""
    model = reference("llama rope longrope")
    model.save_pretrained(tmp_path)
    config, ours = load(tmp_path, max_model_len=max_model_len)
    sequence = torch.arange(length)
    (logits,) = logits_in_chunks(config, ours, [sequence], [30, 1, 40])
    with torch.no_grad():
        assert float((logits - model(sequence.unsqueeze(0)).logits[0]).abs().max()) < 2e-3


def test_older_config_keys(tmp_path: Path) -> None:
    """`rope_theta` and `rope_scaling` at the top level, as checkpoints before transformers 5 have them."""
    model = reference("llama rope llama3")
    model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config |= {"rope_theta": rope.pop("rope_theta"), "rope_scaling": rope}
    path.write_text(json.dumps(config))
    parsed, ours = load(tmp_path, max_model_len=200)
    sequence = torch.arange(60)
    (logits,) = logits_in_chunks(parsed, ours, [sequence], [60])
    with torch.no_grad():
        assert float((logits - model(sequence.unsqueeze(0)).logits[0]).abs().max()) < 2e-3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_stays_near(dtype: torch.dtype, tmp_path: Path) -> None:
    model = reference("llama")
    model.save_pretrained(tmp_path)
    config, ours = load(tmp_path, max_model_len=200, dtype=dtype)
    sequence = torch.arange(50)
    (logits,) = logits_in_chunks(config, ours, [sequence], [20, 1])
    with torch.no_grad():
        expected = model.to(dtype)(sequence.unsqueeze(0)).logits[0].float()
        exact = model.float()(sequence.unsqueeze(0)).logits[0]
    theirs, mine = (expected - exact).abs().mean(), (logits - exact).abs().mean()
    assert mine < 1.5 * theirs + 1e-3
