"""What every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def models() -> Path:
    """The folder of test models."""
    folder = os.environ.get("OCTAVO_TEST_MODELS")
    assert folder, "set OCTAVO_TEST_MODELS to the folder that `make test-models` fills"
    return Path(folder)


@pytest.fixture(scope="session")
def gguf(models: Path) -> Path:
    """SmolLM2-135M-Instruct, Q4_1."""
    return models / "smollm2-135m-instruct-gguf" / "SmolLM2-135M-Instruct.Q4_1.gguf"
