"""How each engine is started: the command, its environment and the settings worth trying."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .weights import TINY, TORCH_DTYPES

if TYPE_CHECKING:
    from pathlib import Path

    from .weights import Weights

KV_GIB = 2
CONTEXT = 2048
# llama-server's KV memory, in tokens of all slots: what 32 requests of 800 tokens need, and 256 of 160.
LLAMA_TOKENS = {True: 65536, False: 32768}


@dataclass(frozen=True)
class Engine:
    """One engine in one setting, for one format. `{port}` in the command is the port."""

    engine: str
    setting: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    start_limit_s: float = 60.0
    # Scenarios that this setting is meant for; none: all.
    only: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Tools:
    """Commands of the engines."""

    vllm: Path
    vllm_cache: Path
    llama_server: Path


def engines(format_: str, weights: Weights, tools: Tools, quick: bool) -> list[Engine]:
    """Return what is compared on a format; the first setting of an engine is the one that mostly wins.

    `quick` keeps only that one.
    """
    found = [octavo(format_, weights), *llama(format_, weights, tools)]
    if format_ in TORCH_DTYPES or format_ == TINY:
        found += vllm(format_, weights, tools)
    first = {engine.engine: engine for engine in reversed(found)}
    return [engine for engine in found if engine is first[engine.engine]] if quick else found


def octavo(format_: str, weights: Weights) -> Engine:
    dtype = TORCH_DTYPES.get(format_, "float32" if format_ == TINY else "")
    model = weights.hugging_face(format_) if dtype else weights.gguf(format_)
    command = [sys.executable, "-m", "octavo", "serve", str(model), "--served-model-name", "m"]
    command += ["--host", "127.0.0.1", "--port", "{port}", "--max-model-len", str(CONTEXT)]
    command += ["--cpu-kvcache-space", str(KV_GIB), "--dtype", dtype or "auto"]
    return Engine("octavo", "default", tuple(command))


def llama(format_: str, weights: Weights, tools: Tools) -> list[Engine]:
    tiny, threads = format_ == TINY, str(os.cpu_count())
    command = [str(tools.llama_server), "-m", str(weights.gguf(format_)), "--alias", "m"]
    command += ["--host", "127.0.0.1", "--port", "{port}", "--threads", threads, "--threads-batch", threads]
    many = ["--parallel", "256" if tiny else "32", "--ctx-size", str(LLAMA_TOKENS[tiny]), "--kv-unified"]
    one = ["--parallel", "1", "--ctx-size", str(CONTEXT)]
    single = frozenset({"tiny1"} if tiny else {"c1", "prefill"})
    slots = Engine("llama.cpp", f"{many[1]} slots", (*command, *many))
    return [slots, Engine("llama.cpp", "1 slot", (*command, *one), only=single)]


def vllm(format_: str, weights: Weights, tools: Tools) -> list[Engine]:
    dtype = TORCH_DTYPES.get(format_, "float32")
    command = [str(tools.vllm), "serve", str(weights.hugging_face(format_)), "--served-model-name", "m"]
    command += ["--host", "127.0.0.1", "--port", "{port}", "--dtype", dtype, "--max-model-len", str(CONTEXT)]
    # The first: it refuses to start at its default share of memory where other programs hold some.
    command += ["--gpu-memory-utilization", "0.3", "--max-num-seqs", "256"]
    command += ["--no-enable-log-requests", "--disable-uvicorn-access-log"]
    quiet = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}
    # Artifacts compiled ahead of time fail to load in this version, so that it compiles at every start; the
    # older cache works.
    quiet |= {"VLLM_USE_AOT_COMPILE": "0", "VLLM_CACHE_ROOT": str(tools.vllm_cache)}
    quiet |= {"VLLM_CPU_KVCACHE_SPACE": str(KV_GIB)}
    cores = f"0-{(os.cpu_count() or 1) - 1}"
    binds = {"all cores": cores, "auto": "auto"}
    if format_ == TINY:
        # One core is left to the rest of the server: that wins where the model costs nothing.
        binds = dict(reversed(binds.items()))
    return [
        Engine(
            "vllm",
            f"compiled, {name}",
            tuple(command),
            tuple({**quiet, "VLLM_CPU_OMP_THREADS_BIND": bind}.items()),
            start_limit_s=600,
        )
        for name, bind in binds.items()
    ]
