"""Architecture name -> the class that computes it. Modules are imported when their model is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from octavo.models.config import UnsupportedModelError

if TYPE_CHECKING:
    from octavo.layers import Backend
    from octavo.models.config import ModelConfig
    from octavo.models.decoder import CausalLM

_MODELS = {
    "Gemma3ForCausalLM": "gemma3",
    "LlamaForCausalLM": "llama",
    "LLaMAForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
"""`architectures[0]` of config.json -> module; the class has the module's own name for the family."""


def supported_architectures() -> list[str]:
    """Names accepted in config.json's `architectures`."""
    return sorted(_MODELS)


def create_model(config: ModelConfig, backend: Backend, max_model_len: int) -> CausalLM:
    """Builds the model with uninitialised weights."""
    module_name = _MODELS.get(config.architecture)
    if module_name is None:
        raise UnsupportedModelError(
            f"the model's architecture is {config.architecture!r}, which Octavo does not know; "
            f"supported are {', '.join(supported_architectures())}"
        )
    module = importlib.import_module(f"octavo.models.{module_name}")
    return cast("CausalLM", module.MODEL(config, backend, max_model_len))
