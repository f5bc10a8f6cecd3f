"""What KV on disk belongs to: another model, layout or way to compute has another fingerprint."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from octavo.config import EngineConfig

_KV_VERSION = 2
"""Goes up when the same model computes or lays out KV in another way than before."""

_SAMPLE_BYTES = 1 << 16
_WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt")
_CONFIGS = ("config.json", "params.json")

_LAYOUT_FACTS = (
    "architecture",
    "dtype",
    "kv_cache_dtype",
    "num_layers",
    "kv_heads",
    "head_dim",
    "block_size",
    "kv_bytes_per_block",
)
_OPTIONS = ("dtype", "quantization", "load_format", "seed", "hf_overrides")


def kv_fingerprint(config: EngineConfig, model: Path, facts: dict[str, Any]) -> bytes:
    """32 bytes over layout, options and files of the model in the folder or file `model`.

    Of each file: name, size, time of change and 64 KiB at both ends; small ones, such as config.json, are
    covered whole. Raises OSError where a file cannot be read.
    """
    layout = {name: facts[name] for name in _LAYOUT_FACTS}
    options = {name: getattr(config, name) for name in _OPTIONS}
    described = json.dumps([_KV_VERSION, layout, options], sort_keys=True, default=str)
    digest = hashlib.sha256(described.encode())
    for path in _files(model):
        status = path.stat()
        digest.update(json.dumps([path.name, status.st_size, status.st_mtime_ns]).encode())
        with path.open("rb") as file:
            digest.update(file.read(_SAMPLE_BYTES))
            file.seek(max(0, status.st_size - _SAMPLE_BYTES))
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.digest()


def _files(model: Path) -> list[Path]:
    """Configuration and weights; text (tokenizer, template) does not change KV."""
    if model.is_file():
        return [model]
    return sorted(path for path in model.iterdir() if path.suffix in _WEIGHTS or path.name in _CONFIGS)
