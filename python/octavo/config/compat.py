"""Arguments of other engines that scripts often carry, and the values at which Octavo can honour them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.config.option import BOOLEAN, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

_ANY = object()

# Name -> (accepted values, what to say about others).
FIXED: dict[str, tuple[tuple[Any, ...], str]] = {
    "code_revision": ((None,), "no code is taken from a model's files"),
    "compilation_config": ((_ANY,), ""),
    "config_format": (("auto", "hf", None), "only the Hugging Face format is known"),
    "convert": (("auto", "none", None), "adapted model heads are not part of this release"),
    "cpu_offload_gb": ((0, None), "weights cannot be kept off the device in this release"),
    "data_parallel_size": ((1, None), "this release runs one replica"),
    "disable_custom_all_reduce": ((_ANY,), ""),
    "distributed_executor_backend": ((None, "mp", "uni"), "this release runs on one device"),
    "enable_auto_tool_choice": ((False, None), "tool calls are not part of this release"),
    "enable_lora": ((False, None), "adapters are not part of this release"),
    "enable_sleep_mode": ((False, None), "sleeping is not part of this release"),
    "enforce_eager": ((_ANY,), ""),
    "limit_mm_per_prompt": ((_ANY,), ""),
    "logits_processors": ((None, []), "code of one's own in sampling is not part of this release"),
    "logprobs_mode": (("raw_logprobs", None), "log-probabilities are those of the raw logits"),
    "mm_processor_kwargs": ((None, {}), "this release takes text only"),
    "model_impl": (("auto", "vllm", None), "models are computed by Octavo itself"),
    "pipeline_parallel_size": ((1, None), "this release runs on one device"),
    "pooler_config": ((None,), "this release generates text only"),
    "reasoning_parser": ((None, ""), "reasoning is not told from the answer in this release"),
    "runner": (("auto", "generate", None), "this release generates text only"),
    "skip_tokenizer_init": ((False, None), "the tokenizer is always loaded"),
    "speculative_config": ((None,), "speculative decoding is not part of this release"),
    "task": (("auto", "generate", None), "this release generates text only"),
    "tensor_parallel_size": ((1, None), "this release runs on one device"),
    "tokenizer_mode": (("auto", "hf", "slow", "fast", None), "only the model's own tokenizer is known"),
    "tokenizer_revision": ((None,), "use --revision, or --tokenizer with a folder"),
    "tool_call_parser": ((None, ""), "tool calls are not part of this release"),
    "trust_remote_code": ((_ANY,), ""),
    "use_tqdm_on_load": ((_ANY,), ""),
}

# Those of them that are switches: on the command line they take no value.
SWITCHES = frozenset(
    {
        "async_scheduling",
        "disable_custom_all_reduce",
        "enable_auto_tool_choice",
        "enable_lora",
        "enable_sleep_mode",
        "enforce_eager",
        "skip_tokenizer_init",
        "trust_remote_code",
        "use_tqdm_on_load",
    }
)


def _depth(value: Any) -> int:
    return 2 if BOOLEAN.convert(value) else 1


# Name -> (the option that it sets, how the value is translated).
SYNONYMS: dict[str, tuple[str, Callable[[Any], Any]]] = {"async_scheduling": ("pipeline_depth", _depth)}


def translate(given: dict[str, Any], source: str) -> dict[str, Any]:
    """`given` without the arguments that need nothing done, and with synonyms replaced.

    Raises ConfigError for a value that asks for something Octavo does not do.
    """
    kept = {}
    for name, value in given.items():
        if name in FIXED:
            accepted, reason = FIXED[name]
            if not any(item is _ANY or str(item).lower() == str(value).lower() for item in accepted):
                raise ConfigError(f"{source}: {name} cannot be {value!r}: {reason}")
        elif name in SYNONYMS:
            target, convert = SYNONYMS[name]
            if target not in given:
                kept[target] = convert(value)
        else:
            kept[name] = value
    return kept
