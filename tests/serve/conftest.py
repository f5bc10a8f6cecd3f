"""One server for all tests of this folder that do not need their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from serving import Server, serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def server(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("serve") / "log"
    with serve(gguf, log, "--kv-cache-memory-bytes", "512M", "--dtype", "float32") as server:
        yield server
