"""A tiny model with random weights: the whole engine at little cost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from served import Served

from octavo import LLM

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 49152,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@pytest.fixture(scope="session")
def tiny_options(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Options for an engine with the tiny model and a real tokenizer."""
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "config.json").write_text(json.dumps(TINY))
    return {
        "model": str(folder),
        "tokenizer": str(gguf),
        "load_format": "dummy",
        "dtype": "float32",
        "kv_cache_memory_bytes": 1 << 25,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 256,
    }


@pytest.fixture(scope="session")
def llm(tiny_options: dict[str, Any]) -> Iterator[LLM]:
    with LLM(**tiny_options) as engine:
        yield engine


@pytest.fixture(scope="session")
def demo_server(gguf: Path) -> Iterator[Served]:
    """A server with a real model, named demo."""
    options = {"model": str(gguf), "served-model-name": "demo", "dtype": "float32"}
    with Served(options, **{"kv-cache-memory-bytes": "512M"}) as server:
        yield server
        server.process.terminate()
        assert server.end() == 0, "\n".join(server.lines)
