"""From a model argument to files on disk."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.engine import demo
from octavo.engine.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from huggingface_hub.hf_api import RepoSibling

    from octavo.config import EngineConfig

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_HUB_FILE = re.compile(r"([A-Za-z0-9][\w.-]*/[\w.-]+)/([\w./-]+\.gguf)")
_WANTED = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
# The same weights once more, in their authors' own layout.
_UNWANTED = ["original/*", "consolidated*.safetensors"]
_SHOWN_FILES = 8
_INSTEAD = "give a folder with config.json and safetensors, a .gguf file, or demo"


def find_model(config: EngineConfig, say: Callable[[str], None]) -> Path:
    """The folder or .gguf file of `config.model`, downloaded first where need be.

    `say` gets a line about each thing that takes time. Raises ModelError.
    """
    return _find(config.model, config, say)


def find_tokenizer(config: EngineConfig, say: Callable[[str], None]) -> Path | None:
    """Where the tokenizer is read from; None where it is the model's own."""
    return None if config.tokenizer is None else _find(config.tokenizer, config, say)


def _find(name: str, config: EngineConfig, say: Callable[[str], None]) -> Path:
    if name == "demo":
        return demo.pull(say)
    path = Path(name).expanduser()
    if path.is_dir():
        return _checked_folder(path)
    if path.is_file():
        if path.suffix == ".gguf" or path.name == "tokenizer.json":
            return path
        raise ModelError(f"{path} is not a .gguf file; {_INSTEAD}")
    hub_file = _HUB_FILE.fullmatch(name)
    if hub_file is not None:
        return _download(hub_file[1], hub_file[2], config, say)
    if path.suffix == ".gguf" or name.startswith(("/", ".", "~")) or _HUB_ID.fullmatch(name) is None:
        raise ModelError(f"no such model: {path} does not exist; {_INSTEAD}")
    return _download(name, None, config, say)


def _checked_folder(folder: Path) -> Path:
    if _is_model(folder):
        return folder
    inside = sorted(folder.glob("*.gguf"))
    hint = f"; did you mean {inside[0]}?" if inside else f"; {_INSTEAD}"
    raise ModelError(f"{folder} has no config.json{hint}")


def _is_model(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("config.json", "tokenizer.json"))


def _download(repo: str, file: str | None, config: EngineConfig, say: Callable[[str], None]) -> Path:
    """The folder of a repository on the hub, or one .gguf file in it."""
    # Slow to import, and only needed here.
    from huggingface_hub import HfApi, errors, hf_hub_download, snapshot_download  # noqa: PLC0415

    say(f"looking for {repo} on the Hugging Face hub")
    revision, token = config.revision, config.hf_token
    access: dict[str, Any] = {"revision": revision, "token": token, "cache_dir": config.download_dir}
    try:
        if file is not None:
            with suppress(errors.RemoteEntryNotFoundError):
                return Path(hf_hub_download(repo, file, **access))
        else:
            folder = Path(
                snapshot_download(repo, **access, allow_patterns=_WANTED, ignore_patterns=_UNWANTED)
            )
            if _is_model(folder):
                return folder
        info = HfApi().model_info(repo, revision=revision, token=token)
    except errors.GatedRepoError:
        raise ModelError(
            f"{repo} asks for consent: accept its terms on the hub, then pass --hf-token (or HF_TOKEN)"
        ) from None
    except errors.RevisionNotFoundError:
        raise ModelError(f"{repo} has no revision {revision}") from None
    except errors.RepositoryNotFoundError:
        raise ModelError(
            f"the hub has no public model {repo} (private: pass --hf-token); {_INSTEAD}"
        ) from None
    except errors.HFValidationError as error:
        raise ModelError(f"{repo} is neither a file here nor a model id: {error}") from None
    except (errors.HfHubHTTPError, OSError, RuntimeError) as error:
        raise ModelError(
            f"cannot reach the Hugging Face hub for {repo} ({type(error).__name__}), and it is not in the "
            f"local cache; check the network or HF_ENDPOINT, or {_INSTEAD}"
        ) from error
    raise ModelError(
        f"{repo} on the hub has no {file or 'config.json'}; {_choice(repo, info.siblings or [])}"
    )


def _choice(repo: str, siblings: Sequence[RepoSibling]) -> str:
    """What to do instead, from what a repository has."""
    files = sorted(one.rfilename for one in siblings if one.rfilename.endswith(".gguf"))
    if not files:
        return _INSTEAD
    shown = ", ".join(f"{repo}/{name}" for name in files[:_SHOWN_FILES])
    return f"name one of its files: {shown}{', ...' if len(files) > _SHOWN_FILES else ''}"
