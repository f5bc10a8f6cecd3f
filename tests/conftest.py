"""What every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "models: needs test models besides SmolLM2; runs with -m models")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("-m"):
        apart = [item for item in items if item.get_closest_marker("models")]
        config.hook.pytest_deselected(items=apart)
        items[:] = [item for item in items if item not in apart]


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
