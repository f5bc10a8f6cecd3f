"""`octavo collect-env`: what a bug report should say about the machine."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.config.command_line import Parser

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PACKAGES = ("octavo", "torch", "triton", "numpy", "safetensors", "huggingface_hub", "transformers")
_FEATURES = (
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512_bf16",
    "avx512_vnni",
    "avx_vnni",
    "amx_tile",
    "amx_int8",
    "asimd",
    "asimddp",
    "i8mm",
    "bf16",
    "sve",
)


def run(words: Sequence[str]) -> int:
    """Print one line a fact; what is missing is said, never an error."""
    Parser(prog="octavo collect-env", description="Print what a bug report should say.").parse_strict(words)
    for name, value in _facts():
        sys.stdout.write(f"{name + ':':<16} {value}\n")
    return 0


def _facts() -> Iterator[tuple[str, str]]:
    yield "python", f"{platform.python_version()} ({sys.executable})"
    for package in _PACKAGES:
        yield package, _version(package)
    yield "extension", _extension()
    yield "system", platform.platform()
    model, features = _processor()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield "processor", f"{model}, {cores} of {os.cpu_count()} cores"
    yield "instructions", " ".join(features) or "unknown"
    yield "memory", _memory()
    yield "devices", _devices()
    for name in sorted(os.environ):
        if name.startswith(("OCTAVO_", "VLLM_", "HF_", "CUDA_", "OMP_")):
            secret = any(word in name for word in ("KEY", "TOKEN", "SECRET"))
            yield name, "(set)" if secret else os.environ[name]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _extension() -> str:
    try:
        return str(import_module("octavo._core").__version__)
    except ImportError as error:
        return f"not loadable: {error}"


def _processor() -> tuple[str, list[str]]:
    model, flags = platform.processor() or platform.machine(), set()
    info = Path("/proc/cpuinfo")
    for line in info.read_text(errors="replace").splitlines() if info.is_file() else []:
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            model = value.strip()
        if name.strip() in ("flags", "Features"):
            flags = set(value.split())
            break
    return model, [feature for feature in _FEATURES if feature in flags]


def _memory() -> str:
    info = Path("/proc/meminfo")
    if not info.is_file():
        return "unknown"
    fields = dict(line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
    total, free = (int(fields[name].split()[0]) / 2**20 for name in ("MemTotal", "MemAvailable"))
    return f"{total:.1f} GiB, {free:.1f} GiB available"


def _devices() -> str:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "no NVIDIA driver"
    query = [tool, "--query-gpu=name,memory.total,driver_version,compute_cap", "--format=csv,noheader"]
    try:
        asked = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)  # noqa: S603  (fixed words)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nvidia-smi failed: {error}"
    return "; ".join(asked.stdout.strip().splitlines()) or (asked.stderr or asked.stdout).strip() or "none"
