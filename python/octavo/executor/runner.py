"""The runner: a model on a device, computing one frame at a time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from octavo import ops
from octavo.executor import kv_cache
from octavo.executor.cores import place_threads
from octavo.executor.host_tier import CopyTimes, HostTier, load_cost_tokens
from octavo.executor.machine import available_memory_bytes, keep_freed_memory
from octavo.executor.pending import Pending
from octavo.executor.rows import Rows, Step, blank_prefill, new_slots
from octavo.layers import Backend, block_slots, checkpoint_slots, finish_loading, weight_bytes
from octavo.loader import ONLINE, block_source, fill, fill_blocks, fill_dummy, open_checkpoint
from octavo.models import ModelConfig, create_model
from octavo.sampling import Sampler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from octavo.boundary import KVGroup
    from octavo.executor.frame import Frame, StepResult
    from octavo.loader import BlockSource, Checkpoint, Progress
    from octavo.sampling import Logprobs, Sampled

_DTYPES = {
    "float32": torch.float32,
    "float": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "half": torch.float16,
}

_MEASURED_TOKENS = 64

_LOGIT_ELEMENTS = 1 << 24
"""Bound on the logits of prompt tokens held at once."""


@dataclass(frozen=True)
class RunnerConfig:
    """Resolved options of a worker."""

    model: str
    """A folder or a `.gguf` file."""
    dtype: str = "auto"
    kv_cache_dtype: str = "auto"
    quantization: str | None = None
    """Of weights: "int8" or "int4" to round floats, a method that the model must have, or None."""
    device: str = "auto"
    block_size: int = 16
    max_model_len: int | None = None
    """Tokens; None: the model's own limit (shorter where memory is scarce); -1: the longest that fits."""
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    max_logprobs: int = 20
    kv_cache_memory_bytes: int | None = None
    gpu_memory_utilization: float = 0.92
    num_gpu_blocks_override: int | None = None
    kv_blocks: list[int] | None = None
    """Blocks of each layer group, exactly: for a worker in the place of another."""
    seed: int = 0
    load_format: str = "auto"
    hf_overrides: Mapping[str, Any] = field(default_factory=dict)
    cpu_threads: int | None = None
    """Threads; None is one for each physical core, or as many as `cpu_bind` lists."""
    cpu_bind: str | Sequence[int] = "auto"
    """Their cores: "auto", "none" or a list."""
    measure_copies: bool = False
    """Find out what copying a block costs, for a host tier."""


@dataclass(frozen=True)
class ModelFacts:
    """What was found when the model was loaded."""

    architecture: str
    vocab_size: int
    max_model_len: int
    model_max_len: int
    """The model's own limit."""
    dtype: str
    kv_cache_dtype: str
    num_layers: int
    kv_heads: int
    head_dim: int
    block_size: int
    num_blocks: int
    """Of the spine, the layer group that keeps everything."""
    groups: list[KVGroup]
    """The groups beside it."""
    kv_bytes_per_block: int
    weight_bytes: int
    device: str
    host_load_tokens: float
    """What copying a block costs, in prompt tokens computed in the same time; 0 if not measured."""
    kv_explanation: str
    """One sentence: how large KV memory is, why, and which option changes it."""


class Runner:
    """Call `load` once, then `execute` for every frame, in order."""

    def __init__(self, config: RunnerConfig) -> None:
        self._config = config
        self._host: HostTier | None = None
        self.own_core: int | None = None
        """Where the thread that calls should stay; a process that is the runner's own sees to it."""

    @torch.inference_mode()
    def load(self, progress: Callable[[str], None]) -> ModelFacts:
        """Loads the model and takes KV memory; `progress` is told in words.

        Raises ValueError (one readable sentence) where the model cannot be served like this.
        """
        config = self._config
        self._device = _device(config.device)
        self._ops = self._kernels(progress)
        checkpoint = open_checkpoint(config.model, config.load_format)
        model_config = ModelConfig.from_hf(_merged(checkpoint.config, config.hf_overrides))
        dtype = _dtype(config.dtype, model_config.dtype, self._device)
        backend = Backend(self._device, dtype, self._ops)
        longest = _longest(config.max_model_len, model_config.max_position)
        blocks = self._block_source(checkpoint)
        _check_weights_fit(model_config, backend, blocks)
        self._model = create_model(model_config, backend, longest)
        self._fill(checkpoint, blocks, _in_words(progress))
        finish_loading(self._model)
        # The files stay mapped, and count as memory of this process, as long as these are there.
        del checkpoint, blocks
        if self._device.type == "cpu":
            keep_freed_memory()
        kv_dtype = _kv_dtype(config.kv_cache_dtype, dtype)
        groups = kv_cache.layer_groups(model_config, config.block_size, kv_dtype, longest)
        plan = self._plan(groups, model_config)
        self._caches = kv_cache.allocate_groups(groups, plan.blocks, self._device)
        table_blocks = -(-plan.max_model_len // config.block_size)
        in_order = sorted((layer, at) for at, group in enumerate(groups) for layer in group.layers)
        group_of_layer = [at for _, at in in_order]
        self._forward = self._ops.record(self._model, self._caches, group_of_layer)
        self._rows = Rows(self._device, config.max_num_seqs, table_blocks, config.block_size, group_of_layer)
        self._sampler = Sampler(
            backend.ops, self._device, model_config.vocab_size, config.max_num_seqs, config.max_logprobs
        )
        return ModelFacts(
            architecture=model_config.architecture,
            vocab_size=model_config.vocab_size,
            max_model_len=plan.max_model_len,
            model_max_len=model_config.max_position,
            dtype=str(dtype).removeprefix("torch."),
            kv_cache_dtype=str(kv_dtype).removeprefix("torch."),
            num_layers=model_config.num_layers,
            kv_heads=model_config.num_kv_heads,
            head_dim=model_config.head_dim,
            block_size=config.block_size,
            num_blocks=plan.blocks[0],
            groups=kv_cache.core_groups(groups, plan.blocks),
            kv_bytes_per_block=groups[0].shape.bytes_per_block,
            weight_bytes=weight_bytes(self._model),
            device=_device_name(self._device),
            host_load_tokens=self._host_load_tokens() if config.measure_copies else 0.0,
            kv_explanation=plan.explanation,
        )

    def attach_host(self, memory: memoryview, slots: int) -> None:
        """Give the KV cache a host tier of `slots` blocks in `memory`."""
        self._host = HostTier(memory, slots, self._caches)

    def _kernels(self, progress: Callable[[str], None]) -> ops.Ops:
        """The ops for the device; on a CPU, with threads on cores of their own."""
        if self._device.type != "cpu":
            return ops.select(self._device)
        placement = place_threads(self._config.cpu_bind, self._config.cpu_threads)
        if placement.cores and not isinstance(self._config.cpu_bind, str):
            self.own_core = placement.cores[0]
        progress(placement.words)
        # Of torch's own threads, which spin, one is enough.
        torch.set_num_threads(1)
        return ops.select(self._device, placement.threads, placement.cores)

    def _host_load_tokens(self) -> float:
        count = min(_MEASURED_TOKENS, self._config.max_num_batched_tokens)
        tokens = torch.zeros(count, dtype=torch.int64, device=self._device)
        metadata = [blank_prefill(count, self._config.block_size, self._device)] * len(self._caches)
        return load_cost_tokens(self._caches, lambda: self._forward(tokens, tokens, metadata), count)

    def _block_source(self, checkpoint: Checkpoint) -> BlockSource | None:
        """Quantised weights stay so on a CPU, unless a type of floats alone is asked for by name."""
        config = self._config
        if self._device.type != "cpu":
            if config.quantization in ONLINE:
                raise ValueError(f"quantization {config.quantization} is for models on a CPU")
            return None
        if config.load_format == "dummy" or (config.dtype != "auto" and config.quantization is None):
            return None
        return block_source(checkpoint, config.quantization, self._ops.quantize)

    def _fill(self, checkpoint: Checkpoint, blocks: BlockSource | None, progress: Progress) -> None:
        """The slots end with this call: packing then frees each weight as it goes."""
        if self._config.load_format == "dummy":
            fill_dummy(checkpoint_slots(self._model), self._config.seed, progress)
            return
        filled: set[str] = set()
        if blocks is not None:
            filled = fill_blocks(block_slots(self._model), blocks, checkpoint, progress)
        fill(checkpoint_slots(self._model), checkpoint, progress, filled)

    @torch.inference_mode()
    def execute(self, frame: Frame, result: StepResult) -> None:
        """Computes a frame and writes its result."""
        self.launch(frame).write(result)

    @torch.inference_mode()
    def launch(self, frame: Frame) -> Pending:
        """Starts a frame's work; on a GPU the result is read back by `Pending.write`."""
        _, _, number, rows, num_tokens, new, freed, deltas, _, saves, loads, *_ = frame.header.tolist()
        if freed:
            self._sampler.free(frame.freed_slot.numpy()[:freed])
        for slot in new_slots(frame, new) if new else ():
            self._sampler.add(slot)
        self._rows.apply_deltas(frame, deltas)
        copies = CopyTimes(0, 0) if self._host is None else self._host.apply(frame, saves, loads)
        if rows == 0:
            return Pending(number, None, None, [], copies)
        step = self._rows.prepare(frame, number, rows, num_tokens)
        hidden = self._forward(step.tokens, step.positions, step.metadata)
        prompt = self._prompt_logprobs(step, hidden) if len(step.prompt_tokens) else []
        return Pending(number, step, self._sample(step, hidden), prompt, copies)

    def _sample(self, step: Step, hidden: Tensor) -> Sampled | None:
        if not len(step.sample_rows):
            return None
        if len(step.sample_rows) < len(hidden):
            hidden = hidden.index_select(0, torch.from_numpy(step.sample_tokens).to(self._device))
        logits = self._model.logits(hidden)
        sampled = self._sampler.sample(logits, step.sample_slots, step.sample_positions)
        self._rows.last_token.index_copy_(
            0, torch.from_numpy(step.sample_slots).to(self._device), sampled.tokens
        )
        return sampled

    def _prompt_logprobs(self, step: Step, hidden: Tensor) -> list[Logprobs]:
        """In chunks, so that not all logits are there at once."""
        index = torch.from_numpy(step.prompt_tokens).to(self._device)
        targets = torch.from_numpy(step.prompt_targets).to(self._device)
        chunk = max(1, _LOGIT_ELEMENTS // self._sampler.vocab_size)
        return [
            self._sampler.logprobs(self._model.logits(hidden[part]), target)
            for part, target in zip(torch.split(index, chunk), torch.split(targets, chunk), strict=True)
        ]

    def _plan(self, groups: Sequence[kv_cache.LayerGroup], model: ModelConfig) -> kv_cache.KVPlan:
        config = self._config
        asked = config.max_model_len or None
        length = model.max_position if asked in (None, -1) else asked
        division = kv_cache.Division(groups, config.max_num_seqs, config.max_num_batched_tokens)
        if config.kv_blocks is not None:
            return kv_cache.KVPlan(tuple(config.kv_blocks), length, "KV memory: that of the worker before")
        if config.num_gpu_blocks_override is not None:
            return kv_cache.plan_override(division, config.num_gpu_blocks_override, length)
        if config.kv_cache_memory_bytes is not None:
            budget = kv_cache.Budget(config.kv_cache_memory_bytes, "as asked", exact=True)
        elif self._device.type == "cpu":
            budget = kv_cache.cpu_budget()
        else:
            budget = kv_cache.cuda_budget(
                self._device, config.gpu_memory_utilization, self._peak_bytes(groups)
            )
        return kv_cache.plan(division, budget, model.max_position, asked)

    def _peak_bytes(self, groups: Sequence[kv_cache.LayerGroup]) -> int:
        """Memory of weights and of the largest step, measured by running one on a GPU."""
        config, device = self._config, self._device
        torch.cuda.reset_peak_memory_stats(device)
        caches = kv_cache.allocate_groups(groups, [1] * len(groups), device)
        tokens = torch.zeros(config.max_num_batched_tokens, dtype=torch.int64, device=device)
        rows = blank_prefill(config.max_num_batched_tokens, config.block_size, device)
        hidden = self._model(tokens, tokens, [rows] * len(caches), caches)
        logits = self._model.logits(hidden[: config.max_num_seqs])
        torch.log_softmax(logits, dim=-1)
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_reserved(device)


def _merged(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Overrides replace keys; those inside an object replace keys inside that object."""
    merged = dict(config)
    for key, value in overrides.items():
        old = merged.get(key)
        merged[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _longest(asked: int | None, model_limit: int) -> int:
    if asked is None or asked <= 0:
        return model_limit
    if asked > model_limit:
        raise ValueError(
            f"max_model_len = {asked} is more than the {model_limit} tokens that the model was made for; "
            "lower it, or change max_position_embeddings and the rope parameters with hf_overrides"
        )
    return asked


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device is cuda, but torch finds no usable CUDA device; choose device cpu")
    return torch.device(name)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _dtype(asked: str, of_checkpoint: str | None, device: torch.device) -> torch.dtype:
    """What was asked for. "auto" is the checkpoint's own type, float32 where it does not say; on a GPU
    bfloat16 in place of float32.
    """
    if asked != "auto":
        if asked not in _DTYPES:
            raise ValueError(f"dtype {asked!r} is unknown; choose one of auto, {', '.join(_DTYPES)}")
        return _DTYPES[asked]
    own = _DTYPES.get(of_checkpoint or "", torch.float32)
    return torch.bfloat16 if own == torch.float32 and device.type == "cuda" else own


def _kv_dtype(asked: str, of_model: torch.dtype) -> torch.dtype:
    """The type of a cache's elements; int8 rows hold a scale for each token and head."""
    if asked == "auto":
        return of_model
    known = _DTYPES | {"int8_per_token_head": torch.int8}
    if asked not in known:
        raise ValueError(f"kv_cache_dtype {asked!r} is unknown; choose one of auto, {', '.join(known)}")
    return known[asked]


def _check_weights_fit(config: ModelConfig, backend: Backend, blocks: BlockSource | None) -> None:
    """On a CPU, weights that do not fit would end in the out-of-memory killer, without a word."""
    model = create_model(config, replace(backend, device=torch.device("meta")), 1)
    needed = weight_bytes(model)
    if blocks is not None:
        for name, place in block_slots(model).items():
            size = blocks.block_bytes(name)
            needed += 0 if size is None else size - place.float_bytes
    on_gpu = backend.device.type == "cuda"
    free = torch.cuda.mem_get_info(backend.device)[0] if on_gpu else available_memory_bytes()
    if needed > free:
        raise ValueError(
            f"the weights take {needed / (1 << 30):.1f} GiB in {backend.dtype}, and {free / (1 << 30):.1f} "
            "GiB of memory are free; choose a smaller or quantised model, or dtype bfloat16"
        )


def _in_words(progress: Callable[[str], None]) -> Progress:
    """Turns byte counts into a line a tenth."""
    told = -1

    def report(what: str, done: int, total: int) -> None:
        nonlocal told
        tenth = 10 * done // max(total, 1)
        if tenth != told:
            told = tenth
            progress(f"{what}: {10 * tenth} % of {total / (1 << 30):.2f} GiB")

    return report
