"""From options to a running engine: what serving and offline use have in common."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo._core import EngineClient, EngineHandle, KvPublisher, TextModel, frame_layout
from octavo.config.kv_events import publisher_config
from octavo.engine import demo
from octavo.engine.errors import ModelError
from octavo.engine.fingerprint import kv_fingerprint
from octavo.engine.source import find_model, find_tokenizer
from octavo.executor.errors import WorkerError
from octavo.executor.inline import InlineExecutor
from octavo.executor.process import ProcessExecutor

if TYPE_CHECKING:
    from collections.abc import Callable

    from octavo.boundary import Limits
    from octavo.config import EngineConfig
    from octavo.executor.loop import Executor

_log = logging.getLogger("octavo")

_ADDED_TOKENS = 1024
_NO_LIMIT = 1 << 28
_STAGING_GIB = 1.0
_FEWEST_HOST_BLOCKS = 4
_MAX_N = 16384
_MAX_STOP_STRINGS = 64


@dataclass(frozen=True)
class StartedEngine:
    """An engine that waits for its step loop."""

    config: EngineConfig
    model: Path
    text: TextModel
    executor: Executor
    handle: EngineHandle
    client: EngineClient
    facts: dict[str, Any]
    sampling_defaults: dict[str, Any]


def start_engine(
    config: EngineConfig, say: Callable[[str], None], *, own_process: bool, leave: Callable[[], bool]
) -> StartedEngine:
    """Find and load the model and put an engine around it.

    `say` gets a line about each thing that takes time. `leave` turns true when nobody waits any more. Raises
    ModelError with one readable line; nothing stays running then.
    """
    # First of all, so that a port in use is said before anything is loaded.
    publisher = _publisher(config)
    model = find_model(config, say)
    tokenizer = find_tokenizer(config, say)
    try:
        executor: Executor
        if own_process:
            executor = ProcessExecutor(worker_config(config, model), say, leave)
        else:
            executor = InlineExecutor(worker_config(config, model), say)
    except WorkerError as error:
        raise ModelError(str(error)) from error
    try:
        return _assemble(config, model, tokenizer, executor, publisher)
    except WorkerError as error:
        executor.close()
        _log.debug("%s", error.details)
        raise ModelError(str(error)) from None
    except (ValueError, OSError) as error:
        executor.close()
        raise ModelError(str(error)) from error
    except BaseException:
        executor.close()
        raise


def _publisher(config: EngineConfig) -> KvPublisher | None:
    resolved = publisher_config(config.kv_events_config)
    return None if resolved is None else KvPublisher(json.dumps(resolved))


def _assemble(
    config: EngineConfig,
    model: Path,
    tokenizer: Path | None,
    executor: Executor,
    publisher: KvPublisher | None,
) -> StartedEngine:
    # A worker process loads the weights meanwhile.
    text = TextModel(model, tokenizer, config.chat_template, config.chat_template_content_format)
    facts = executor.load()
    _check_vocabulary(text.vocab_size, facts["vocab_size"])
    limits = engine_limits(config, facts)
    metrics = json.dumps(metrics_config(config, facts))
    handle = EngineHandle(limits, metrics, config.max_num_queued_tokens, publisher)
    defaults = sampling_defaults(config, text)
    client_config = _client_config(config, text, defaults, facts["vocab_size"])
    client = EngineClient(handle, text, json.dumps(client_config))
    depth = config.pipeline_depth if isinstance(executor, ProcessExecutor) else 1
    host_bytes = limits["host_blocks"] * facts["kv_bytes_per_block"]
    executor.start(limits, frame_layout(limits), depth, host_bytes)
    if config.kv_disk_path is not None:
        found = handle.attach_disk(
            executor.host_memory.fileno(),
            limits["host_blocks"],
            facts["kv_bytes_per_block"],
            str(Path(config.kv_disk_path).expanduser()),
            round(config.kv_disk_size * 2**30),
            kv_fingerprint(config, model, facts),
        )
        _log.info("KV cache on disk: %d blocks of earlier runs in %s", found, config.kv_disk_path)
    return StartedEngine(config, model, text, executor, handle, client, facts, defaults)


def _check_vocabulary(tokenizer: int, model: int) -> None:
    """Some models have a few added tokens that the embeddings lack; a different tokenizer has many."""
    if tokenizer > model + _ADDED_TOKENS:
        raise ModelError(
            f"the tokenizer has {tokenizer} tokens and the model {model}: they do not belong together; "
            "give the model's own tokenizer"
        )
    if tokenizer > model:
        _log.warning("the last %d tokens of the tokenizer are not in the model", tokenizer - model)


def served_names(config: EngineConfig) -> list[str]:
    """Names that the API answers to."""
    return config.served_model_name or [config.model]


def metrics_config(config: EngineConfig, facts: dict[str, Any]) -> dict[str, Any]:
    """What metrics are named after and scaled by, as the Rust side takes it."""
    if config.metrics_max_tenants < 0:
        raise ModelError(f"metrics_max_tenants is {config.metrics_max_tenants}; it must be at least 0")
    settings = {
        "cache_dtype": facts["kv_cache_dtype"],
        "cpu_kvcache_space": config.cpu_kvcache_space,
        "gpu_memory_utilization": config.gpu_memory_utilization,
        "kv_cache_memory_bytes": config.kv_cache_memory_bytes,
        "kv_disk_size": config.kv_disk_size if config.kv_disk_path is not None else None,
        "kv_offloading_size": config.kv_offloading_size,
        "num_gpu_blocks_override": config.num_gpu_blocks_override,
    }
    return {
        "model": served_names(config)[0],
        "block_bytes": facts["kv_bytes_per_block"],
        "cache_config": {name: str(value) for name, value in settings.items()},
        "max_tenants": config.metrics_max_tenants,
    }


def worker_config(config: EngineConfig, model: Path) -> dict[str, Any]:
    """What the worker needs, for `worker.runner_config`."""
    cpu_gib = config.cpu_kvcache_space
    return {
        "model": str(model),
        "dtype": config.dtype,
        "kv_cache_dtype": config.kv_cache_dtype,
        "quantization": config.quantization,
        "device": config.device,
        "block_size": config.block_size,
        "max_model_len": config.max_model_len,
        "max_num_seqs": config.max_num_seqs,
        "max_num_batched_tokens": config.max_num_batched_tokens,
        "max_logprobs": config.max_logprobs,
        "kv_cache_memory_bytes": config.kv_cache_memory_bytes,
        "cpu_kvcache_bytes": round(cpu_gib * 2**30) if cpu_gib else None,
        "gpu_memory_utilization": config.gpu_memory_utilization,
        "num_gpu_blocks_override": config.num_gpu_blocks_override,
        "seed": config.seed,
        "load_format": config.load_format,
        "hf_overrides": config.hf_overrides,
        "cpu_threads": config.cpu_threads,
        "cpu_bind": config.cpu_bind,
        "measure_copies": _host_gib(config) > 0,
    }


def engine_limits(config: EngineConfig, facts: dict[str, Any]) -> Limits:
    """The numbers that bound the core: options where they decide, facts where the model does."""
    return {
        "block_size": facts["block_size"],
        "num_blocks": facts["num_blocks"],
        "groups": [(kind, size, blocks) for kind, size, blocks in facts["groups"]],
        "max_model_len": facts["max_model_len"],
        "max_num_seqs": config.max_num_seqs,
        "max_num_batched_tokens": config.max_num_batched_tokens,
        "long_prefill_token_threshold": config.long_prefill_token_threshold,
        "max_num_queued_reqs": config.max_num_queued_reqs or _NO_LIMIT,
        "max_logprobs": config.max_logprobs,
        "vocab_size": facts["vocab_size"],
        "watermark": config.watermark,
        "enable_prefix_caching": config.enable_prefix_caching,
        "max_pinned_share": config.max_pinned_share,
        "host_blocks": _host_blocks(config, facts),
        "host_load_tokens": facts["host_load_tokens"],
        "disk_tier": config.kv_disk_path is not None,
        "tenant_weights": _tenant_weights(config),
        "policy": config.scheduling_policy,
        "pipeline_depth": config.pipeline_depth,
    }


def _tenant_weights(config: EngineConfig) -> list[tuple[str, float]]:
    # Names may be API keys: they are not repeated in messages.
    weights = config.tenant_weights
    if not all(
        isinstance(weight, (int, float)) and not isinstance(weight, bool) for weight in weights.values()
    ):
        raise ModelError("tenant_weights must map each user or API key to a number")
    if weights and config.scheduling_policy != "fair":
        raise ModelError("tenant_weights need scheduling_policy fair")
    return [(name, float(weight)) for name, weight in weights.items()]


def _host_gib(config: EngineConfig) -> float:
    if config.kv_offloading_size is None:
        return _STAGING_GIB if config.kv_disk_path is not None else 0.0
    return config.kv_offloading_size


def _host_blocks(config: EngineConfig, facts: dict[str, Any]) -> int:
    asked, block = round(_host_gib(config) * 2**30), int(facts["kv_bytes_per_block"])
    if asked == 0:
        return 0
    if facts["groups"]:
        raise ModelError(
            "kv_offloading_size and kv_disk_path are not for models with several layer groups yet, and this "
            "one has sliding windows; serve it without"
        )
    if asked < block * _FEWEST_HOST_BLOCKS:
        raise ModelError(
            f"kv_offloading_size is {_host_gib(config)} GiB and a KV block of this model has {block} bytes; "
            f"give it at least {_FEWEST_HOST_BLOCKS * block / 2**30:.4f} GiB ({_FEWEST_HOST_BLOCKS} blocks)"
        )
    return min(asked // block, _NO_LIMIT)


def sampling_defaults(config: EngineConfig, text: TextModel) -> dict[str, Any]:
    """Values for what requests leave out; None where there is none."""
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens")
    found = _generation_config(config, text)
    if "max_tokens" not in found and "max_new_tokens" in found:
        found["max_tokens"] = found["max_new_tokens"]
    return {name: found.get(name) for name in names}


def _generation_config(config: EngineConfig, text: TextModel) -> dict[str, Any]:
    if config.generation_config == "auto":
        found = demo.SAMPLING_DEFAULTS if config.model == "demo" else text.sampling_defaults
    elif config.generation_config in ("none", "vllm"):
        found = {}
    else:
        path = Path(config.generation_config).expanduser() / "generation_config.json"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ModelError(f"the generation config {path} cannot be read: {error}") from None
    return found | config.override_generation_config


def _client_config(
    config: EngineConfig, text: TextModel, defaults: dict[str, Any], vocab_size: int
) -> dict[str, Any]:
    return {
        "sampling_defaults": defaults,
        # The model cannot give a token outside its vocabulary, and the core refuses to wait for one.
        "eos_token_ids": [token for token in text.eos_token_ids if token < vocab_size],
        "seed": config.seed,
        "max_n": _MAX_N,
        "max_stop_strings": _MAX_STOP_STRINGS,
        "request_timeout_s": config.request_timeout,
        "queue_timeout_s": config.queue_timeout,
        "max_cache_ttl_s": config.max_cache_ttl,
    }
