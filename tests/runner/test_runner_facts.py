"""What a runner says about its model and memory, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import save_file
from stepper import Request, Stepper

from octavo import _core, ops
from octavo.executor import kv_cache
from octavo.executor.frame import Frame, StepResult
from octavo.executor.runner import RunnerConfig
from octavo.layers import Backend, checkpoint_slots
from octavo.loader import fill_dummy
from octavo.models import ModelConfig, create_model

if TYPE_CHECKING:
    from pathlib import Path

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def tiny(folder: Path, **options: Any) -> Stepper:
    defaults: dict[str, Any] = {
        "dtype": "float32",
        "device": "cpu",
        "load_format": "dummy",
        "max_num_seqs": 8,
    }
    return Stepper(RunnerConfig(model=str(folder), **defaults | options))


def test_facts(folder: Path) -> None:
    facts = tiny(folder, kv_cache_memory_bytes=1 << 20, block_size=8).facts
    assert facts.architecture == "LlamaForCausalLM"
    assert (facts.vocab_size, facts.num_layers, facts.kv_heads, facts.head_dim) == (96, 2, 2, 8)
    assert facts.kv_bytes_per_block == 2 * 2 * 2 * 8 * 8 * 4
    assert facts.num_blocks == (1 << 20) // facts.kv_bytes_per_block
    assert facts.max_model_len == facts.model_max_len == 256
    assert facts.dtype == "float32"
    assert facts.device == "cpu"
    assert "--kv-cache-memory-bytes" in facts.kv_explanation
    assert json.loads(json.dumps(asdict(facts))) == asdict(facts)


def test_weight_bytes_count_every_weight_once(folder: Path) -> None:
    attention, mlp = 32 * 32 * 2 + 2 * 16 * 32, 3 * 48 * 32
    expected = 4 * (2 * 96 * 32 + 2 * (attention + mlp + 2 * 32) + 32)
    assert tiny(folder).facts.weight_bytes == expected


def test_without_options_memory_is_no_more_than_all_slots_need(folder: Path) -> None:
    facts = tiny(folder).facts
    assert facts.num_blocks == 8 * 256 // 16


@pytest.mark.parametrize(
    ("own", "dtype"), [(None, "float32"), ("bfloat16", "bfloat16"), ("float16", "float16")]
)
def test_on_a_cpu_the_checkpoints_own_type_is_kept(folder: Path, own: str | None, dtype: str) -> None:
    assert tiny(folder, dtype="auto", hf_overrides={"torch_dtype": own}).facts.dtype == dtype


def test_overrides_reach_the_config(folder: Path) -> None:
    facts = tiny(folder, hf_overrides={"num_hidden_layers": 1, "max_position_embeddings": 64}).facts
    assert (facts.num_layers, facts.model_max_len) == (1, 64)


def test_an_exact_number_of_blocks(folder: Path) -> None:
    facts = tiny(folder, num_gpu_blocks_override=5).facts
    assert (facts.num_blocks, facts.max_model_len) == (5, 256)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_model_len": 300}, "max_model_len = 300 is more than the 256 tokens"),
        (
            {"kv_cache_memory_bytes": 10000},
            "256 tokens needs 64.0 KiB .* are 9.8 KiB .* for 32 tokens; lower max_model_len",
        ),
        ({"kv_cache_memory_bytes": 100}, "hold not one block"),
        ({"dtype": "int7"}, "dtype 'int7' is unknown"),
        (
            {"hf_overrides": {"vocab_size": 1 << 24, "hidden_size": 1 << 16}},
            "the weights take .* GiB of memory are free",
        ),
        ({"load_format": "gguf"}, r"neither config\.json nor a \.gguf file"),
        ({"load_format": "safetensors"}, r"no \.safetensors files"),
    ],
)
def test_what_is_refused(folder: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny(folder, **options)


def test_cuda_where_there_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="finds no usable CUDA device"):
        tiny(folder, device="cuda")
    assert tiny(folder, device="auto").facts.device == "cpu"


def division(*groups: kv_cache.LayerGroup, seqs: int = 4) -> kv_cache.Division:
    return kv_cache.Division(groups, max_num_seqs=seqs, max_num_batched_tokens=64)


SHAPE = kv_cache.KVShape(layers=2, kv_heads=2, block_size=16, head_dim=8, dtype=torch.float32)


ALL = kv_cache.LayerGroup(None, (0, 1), SHAPE)


def test_a_context_that_does_not_fit_the_default_is_shortened_and_said() -> None:
    budget = kv_cache.Budget(10 * SHAPE.bytes_per_block, "a quarter of what is free", exact=False)
    plan = kv_cache.plan(division(ALL), budget, model_limit=1000, asked_len=None)
    assert (plan.blocks, plan.max_model_len) == ((10,), 160)
    assert "from the model's 1000 to 160 tokens" in plan.explanation
    with pytest.raises(ValueError, match="lower max_model_len or raise kv_cache_memory_bytes"):
        kv_cache.plan(division(ALL), budget, model_limit=1000, asked_len=500)


def test_the_longest_context_that_fits() -> None:
    budget = kv_cache.Budget(10 * SHAPE.bytes_per_block, "as asked", exact=True)
    assert kv_cache.plan(division(ALL), budget, 1000, -1).max_model_len == 160
    assert kv_cache.plan(division(ALL), budget, 100, -1).max_model_len == 100


def test_memory_is_divided_between_layers_that_keep_all_and_windows() -> None:
    """Long sequences need few blocks of the window, so that more of them fit than in one group."""
    window = kv_cache.LayerGroup(64, tuple(range(2, 12)), replace(SHAPE, layers=10))
    both = division(ALL, window, seqs=64)
    budget = kv_cache.Budget(
        2000 * (ALL.shape.bytes_per_block + window.shape.bytes_per_block), "", exact=True
    )
    plan = kv_cache.plan(both, budget, 4096, None)
    spine, beside = plan.blocks
    assert both.bytes(spine, 4096) <= budget.size_bytes < both.bytes(spine + 1, 4096)
    # A sequence of four windows has 16 blocks, of which the window keeps 5.
    assert beside == min(-(-spine * 5 // 16), 64 * 5 + 4)
    assert spine > 2 * 2000
    assert f"{beside} blocks for layers with windows of 64 tokens" in plan.explanation


def test_one_sequence_and_a_step_have_room_in_a_window() -> None:
    window = kv_cache.LayerGroup(64, (2,), replace(SHAPE, layers=1))
    assert division(ALL, window, seqs=64).blocks(100, 4096) == (100, 32)
    assert division(ALL, window).blocks(100, 4096) == (100, 4 * 5 + 4)
    assert division(ALL, window).blocks(12, 4096) == (12, 9)
    assert division(ALL, window).blocks(3, 48) == (3, 3)


def test_a_model_of_windows_alone_has_a_spine_without_bytes() -> None:
    spine = kv_cache.LayerGroup(None, (), replace(SHAPE, layers=0))
    window = kv_cache.LayerGroup(64, (0, 1), SHAPE)
    budget = kv_cache.Budget(100 * SHAPE.bytes_per_block, "", exact=True)
    plan = kv_cache.plan(division(spine, window), budget, 1600, None)
    assert plan.blocks == (400, 24)
    assert plan.max_model_len == 1600
    with pytest.raises(ValueError, match="hold not one block"):
        kv_cache.plan(division(spine, window), kv_cache.Budget(100, "", exact=True), 1600, None)


def test_windows_longer_than_every_sequence_are_none() -> None:
    config = replace(ModelConfig.from_hf(CONFIG), num_layers=4, windows=(None, 32, 64, 32))
    groups = kv_cache.layer_groups(config, 16, torch.float32, 200)
    assert [(group.window, group.layers) for group in groups] == [(None, (0,)), (32, (1, 3)), (64, (2,))]
    groups = kv_cache.layer_groups(config, 16, torch.float32, 64)
    assert [(group.window, group.layers) for group in groups] == [(None, (0, 2)), (32, (1, 3))]


def test_caches_start_as_zeros() -> None:
    caches = kv_cache.allocate(SHAPE, 7, torch.device("cpu"))
    assert [tuple(cache.shape) for cache in caches] == [(7, 2, 2, 16, 8)] * 2
    assert all(cache.is_contiguous() and not cache.any() for cache in caches)


def test_no_alternatives_in_logprobs(folder: Path) -> None:
    stepper = tiny(folder, max_logprobs=0)
    request = Request([1, 2, 3], logprobs=0, prompt_logprobs=0)
    stepper.run([request])
    assert len(request.token_logprobs) == 8
    assert sorted(request.prompt_result) == [1, 2]


def test_prompt_logprobs_do_not_depend_on_chunks(folder: Path) -> None:
    stepper = tiny(folder)
    results = []
    for chunk in (50, 7, 1):
        stepper.chunk = chunk
        request = Request(list(range(40)), max_tokens=2, prompt_logprobs=3)
        stepper.run([request, Request([5] * 30, max_tokens=3)])
        results.append(request.prompt_result)
    assert sorted(results[0]) == list(range(1, 40))
    assert results[0] == results[1] == results[2]


def test_logits_that_are_not_finite_end_only_their_own_row(folder: Path) -> None:
    """Token 7's embedding is NaN: requests with it fail, the others do not notice, nor do later ones."""
    weights = dummy_weights()
    clean = Request([1, 2, 3])
    save_file(weights, folder / "model.safetensors")
    tiny(folder, load_format="auto").run([clean])
    weights["model.embed_tokens.weight"][7] = float("nan")
    save_file(weights, folder / "model.safetensors")
    broken = tiny(folder, load_format="auto", num_gpu_blocks_override=8)
    bad, good = Request([1, 7, 3], forced=[3] * 8), Request([1, 2, 3])
    broken.run([bad, good])
    assert set(bad.status) == {1}
    assert set(good.status) == {0}
    later = [Request([1, 2, 3]) for _ in range(4)]
    broken.run(later)
    for request in (good, *later):
        assert request.sampled == clean.sampled


def dummy_weights() -> dict[str, torch.Tensor]:
    backend = Backend(torch.device("cpu"), torch.float32, ops.torch_ops)
    slots = checkpoint_slots(create_model(ModelConfig.from_hf(CONFIG), backend, 64))
    fill_dummy(slots, 0, lambda *_: None)
    return slots


def test_a_frame_of_another_version_is_refused() -> None:
    limits = {
        "block_size": 16,
        "num_blocks": 10,
        "groups": [],
        "max_model_len": 64,
        "max_num_seqs": 2,
        "max_num_batched_tokens": 32,
        "long_prefill_token_threshold": 0,
        "max_num_queued_reqs": 4,
        "max_logprobs": 0,
        "vocab_size": 96,
        "watermark": 0.0,
        "enable_prefix_caching": False,
        "max_pinned_share": 0.5,
        "host_blocks": 0,
        "host_load_tokens": 0.0,
        "disk_tier": False,
        "tenant_weights": [],
        "policy": "fcfs",
        "pipeline_depth": 1,
    }
    layout = _core.frame_layout(limits)
    buffer = memoryview(bytearray(layout["frame_bytes"]))
    frame = Frame(buffer, layout["frame"])
    assert tuple(frame.new_int.shape) == (2, 12)
    frame.tokens[3] = 77
    offset = next(offset for name, _, offset, _ in layout["frame"] if name == "tokens")
    assert int.from_bytes(buffer[offset + 12 : offset + 16], "little") == 77
    with pytest.raises(ValueError, match="tokens"):
        Frame(buffer, [column for column in layout["frame"] if column[0] != "tokens"])
    result = StepResult(memoryview(bytearray(layout["result_bytes"])), layout["result"])
    assert tuple(result.top_id.shape) == (2, 0)


def written(folder: Path) -> dict[str, torch.Tensor]:
    weights = dummy_weights()
    save_file(weights, folder / "model.safetensors")
    return weights


@pytest.mark.parametrize(("quantization", "bits", "off"), [("int8", 8.5, 0.1), ("int4", 5, 1.0)])
def test_floats_are_rounded_when_they_are_loaded(
    folder: Path, quantization: str, bits: float, off: float
) -> None:
    """Layers of 32 inputs become blocks; `down_proj`, with 48, is not whole blocks and stays floats."""
    written(folder)
    plain, rounded = (tiny(folder, load_format="auto", quantization=q) for q in (None, quantization))
    floats = 4 * (2 * 48 * 32 + 5 * 32)
    layers = 2 * (2 * 32 * 32 + 2 * 16 * 32 + 2 * 48 * 32) * bits / 8
    outer = 2 * 96 * 32 * 8.5 / 8
    biases = 4 * (2 * (64 + 32 + 96) + 2 * 96)
    assert rounded.facts.weight_bytes == floats + layers + outer + biases
    one, other = (Request([1, 2, 3], forced=[5] * 8, logprobs=0) for _ in range(2))
    plain.run([one])
    rounded.run([other])
    differences = [abs(a - b) for a, b in zip(one.token_logprobs, other.token_logprobs, strict=True)]
    assert 0 < max(differences) < off


def test_another_quantization_than_the_models_is_refused(folder: Path) -> None:
    written(folder)
    with pytest.raises(ValueError, match=r"quantization is awq, but the weights of .* are floats"):
        tiny(folder, load_format="auto", quantization="awq")
