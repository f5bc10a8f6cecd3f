"""The line that a server prints when it is ready."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.cli.serve import next_step
from octavo.config import ServeConfig


def command(config: ServeConfig, port: int = 8000) -> str:
    return next_step(config, "here", port, can_chat=True).partition("try: ")[2]


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:9000/v1"),
        ("0.0.0.0", "http://127.0.0.1:9000/v1"),
        ("::1", "http://[::1]:9000/v1"),
        ("::", "http://[::1]:9000/v1"),
        ("fe80::2", "http://[fe80::2]:9000/v1"),
    ],
)
def test_the_address_can_be_used(host: str, url: str) -> None:
    assert command(ServeConfig(host=host), 9000).endswith(f"chat --url {url}")


def test_the_command_works_where_octavo_is_not_on_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for folder in (Path(sys.prefix), Path(sys.executable).parent, tmp_path):
        monkeypatch.chdir(folder)
        typed = [*shlex.split(command(ServeConfig())), "--help"]
        done = subprocess.run(typed, check=True, capture_output=True, text=True)
        assert done.stdout.startswith("usage: octavo chat")
