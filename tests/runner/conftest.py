"""Records, models and runners of these tests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from reference import exact, read_records
from safetensors.torch import save_file

from octavo.loader import open_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from stepper import Stepper


@pytest.fixture(scope="session")
def records() -> list[dict[str, Any]]:
    """SmolLM2's."""
    return read_records("smollm2.jsonl")


@pytest.fixture(scope="session")
def smollm2(gguf: Path) -> Stepper:
    return exact(gguf, max_model_len=2048)


@pytest.fixture(scope="session")
def smollm2_folder(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model as config.json and float32 safetensors, written from what the loader read."""
    folder = tmp_path_factory.mktemp("smollm2")
    checkpoint = open_checkpoint(str(gguf))
    (folder / "config.json").write_text(json.dumps(checkpoint.config))
    tensors = {name: checkpoint.read(name).contiguous() for name in checkpoint.shapes()}
    save_file(tensors, folder / "model.safetensors")
    return folder
