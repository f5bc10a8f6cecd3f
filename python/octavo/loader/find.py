"""From a path to the checkpoint that lies there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from octavo.loader.checkpoint import CheckpointError
from octavo.loader.hf_folder import HFFolder
from octavo.loader.quantized_folder import QuantizedFolder

if TYPE_CHECKING:
    from octavo.loader.checkpoint import Checkpoint


def open_checkpoint(path: str, load_format: str = "auto") -> Checkpoint:
    """Opens a `.gguf` file, or a folder with config.json or exactly one `.gguf` file.

    `load_format`: "auto", "safetensors", "gguf", or "dummy" (only the config is read). Raises
    `CheckpointError`.
    """
    location = Path(path)
    if not location.exists():
        raise CheckpointError(f"there is no model at {path}")
    gguf = location if location.is_file() else None
    if location.is_dir() and (load_format == "gguf" or not (location / "config.json").exists()):
        files = sorted(location.glob("*.gguf"))
        if len(files) > 1:
            raise CheckpointError(f"{path} holds {len(files)} .gguf files; name one of them")
        if not files:
            raise CheckpointError(f"{path} has neither config.json nor a .gguf file")
        gguf = files[0]
    if gguf is None:
        folder = HFFolder(location)
        return QuantizedFolder(folder) if folder.config.get("quantization_config") else folder
    if load_format == "safetensors":
        raise CheckpointError(f"{gguf} is not a folder of safetensors, which load_format asks for")
    if gguf.suffix != ".gguf":
        raise CheckpointError(
            f"{gguf} is no .gguf file; a model is a folder with config.json or a .gguf file"
        )
    from octavo.loader.gguf import GGUFFile  # noqa: PLC0415 (needs the extension)

    return GGUFFile(gguf)
