"""Models of the Hugging Face hub, from a small hub on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMIT = "c" * 40
REPOSITORIES = {
    "org/weights": [
        "config.json",
        "model.safetensors",
        "consolidated.00.safetensors",
        "original/params.json",
        "README.md",
    ],
    "org/quantized": ["README.md", "model-Q4_K_M.gguf", "model-Q8_0.gguf"],
}


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as its client asks for here; a file holds its own name."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].strip("/")
        api = path.startswith("api/models/")
        repository = "/".join(path.removeprefix("api/models/").split("/")[:2])
        files = REPOSITORIES.get(repository)
        if files is None:
            self.answer(404, b"", {"X-Error-Code": "RepoNotFound"})
        elif api and "/tree/" in path:
            tree = [{"type": "file", "path": name, "size": len(name), "oid": "0" * 40} for name in files]
            self.answer(200, json.dumps(tree).encode())
        elif api:
            siblings = [{"rfilename": name} for name in files]
            self.answer(200, json.dumps({"id": repository, "sha": COMMIT, "siblings": siblings}).encode())
        else:
            name = path.split("/", 4)[4]
            code = {} if name in files else {"X-Error-Code": "EntryNotFound"}
            headers = {"ETag": f'"{abs(hash(name)):x}"', "X-Repo-Commit": COMMIT, **code}
            self.answer(404 if code else 200, name.encode(), headers)

    do_HEAD = do_GET  # noqa: N815  (named by http.server)

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@pytest.fixture(scope="module")
def hub() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def pull(hub: str, folder: Path, model: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "octavo", "pull", model, "--download-dir", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HF_ENDPOINT": hub, "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1"},
    )


def test_weights_come_once(hub: str, tmp_path: Path) -> None:
    done = pull(hub, tmp_path, "org/weights")
    assert done.returncode == 0, done.stderr
    names = {str(file.relative_to(done.stdout.strip())) for file in Path(done.stdout.strip()).rglob("*.*")}
    assert names == {"config.json", "model.safetensors"}


def test_one_gguf_file_can_be_named(hub: str, tmp_path: Path) -> None:
    done = pull(hub, tmp_path, "org/quantized/model-Q8_0.gguf")
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).read_text() == "model-Q8_0.gguf"


@pytest.mark.parametrize(
    ("model", "lacking"), [("org/quantized", "config.json"), ("org/quantized/Q2.gguf", "Q2.gguf")]
)
def test_files_are_listed_where_one_must_be_named(hub: str, tmp_path: Path, model: str, lacking: str) -> None:
    done = pull(hub, tmp_path, model)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"octavo: org/quantized on the hub has no {lacking}; name one of its files: "
        "org/quantized/model-Q4_K_M.gguf, org/quantized/model-Q8_0.gguf"
    )


def test_an_unknown_repository_is_said(hub: str, tmp_path: Path) -> None:
    done = pull(hub, tmp_path, "org/nothing")
    assert "the hub has no public model org/nothing" in done.stderr.splitlines()[-1]
