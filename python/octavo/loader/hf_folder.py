"""A Hugging Face folder: config.json beside safetensors files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from octavo.loader.checkpoint import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

_MAX_JSON_BYTES = 256 << 20


class HFFolder:
    """Tensors are mapped into memory and read when asked for."""

    def __init__(self, folder: Path) -> None:
        """Raises `CheckpointError` where files are missing or damaged."""
        self.path = str(folder)
        self.config = read_json(folder / "config.json")
        self._files: dict[str, Any] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._file_of: dict[str, str] = {}

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Every tensor's shape, from the headers of all files."""
        if not self._shapes:
            for name in self._weight_files():
                file = self._open(name)
                for key in file.keys():  # noqa: SIM118 (not a dict)
                    self._shapes[key] = tuple(file.get_slice(key).get_shape())
                    self._file_of[key] = name
        return self._shapes

    def read(self, name: str) -> Tensor:
        """One tensor."""
        tensor = self.read_any(name)
        if not tensor.is_floating_point():
            raise CheckpointError(
                f"{self._file_of[name]}: tensor {name} holds {tensor.dtype}, expected floating point"
            )
        return tensor

    def read_any(self, name: str) -> Tensor:
        """One tensor of any type."""
        tensor: Tensor = self._files[self._file_of[name]].get_tensor(name)
        return tensor

    def spare(self, name: str) -> bool:
        """Never."""
        return False

    def _weight_files(self) -> list[str]:
        folder = Path(self.path)
        index = folder / "model.safetensors.index.json"
        if index.exists():
            weight_map = read_json(index).get("weight_map")
            if not isinstance(weight_map, dict):
                raise CheckpointError(f"{index} has no weight_map")
            names = sorted({str(name) for name in weight_map.values()})
        elif (folder / "model.safetensors").exists():
            names = ["model.safetensors"]
        else:
            names = sorted(path.name for path in folder.glob("*.safetensors"))
        if not names:
            raise CheckpointError(
                f"{folder} has no .safetensors files; Octavo reads safetensors and GGUF only"
            )
        for name in names:
            if Path(name).name != name:
                raise CheckpointError(f"{index} names a file outside the folder: {name!r}")
        return names

    def _open(self, name: str) -> Any:
        path = Path(self.path) / name
        try:
            self._files[name] = safe_open(str(path), framework="pt")
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"cannot read {path}: {error}; is the download complete?") from None
        return self._files[name]


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of bounded size. Raises `CheckpointError`."""
    try:
        if path.stat().st_size > _MAX_JSON_BYTES:
            raise CheckpointError(f"{path} is larger than {_MAX_JSON_BYTES >> 20} MiB")
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"cannot read {path}: {error}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} does not hold a JSON object")
    return content
