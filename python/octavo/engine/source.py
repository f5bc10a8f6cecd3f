"""From a model argument to files on disk."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.engine import demo
from octavo.engine.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from octavo.config import EngineConfig

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_WANTED = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
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
    if path.suffix == ".gguf" or name.startswith(("/", ".", "~")) or _HUB_ID.fullmatch(name) is None:
        raise ModelError(f"no such model: {path} does not exist; {_INSTEAD}")
    return _download(name, config, say)


def _checked_folder(folder: Path) -> Path:
    if (folder / "config.json").is_file() or (folder / "tokenizer.json").is_file():
        return folder
    inside = sorted(folder.glob("*.gguf"))
    hint = f"; did you mean {inside[0]}?" if inside else f"; {_INSTEAD}"
    raise ModelError(f"{folder} has no config.json{hint}")


def _download(name: str, config: EngineConfig, say: Callable[[str], None]) -> Path:
    # Slow to import, and only needed here.
    from huggingface_hub import errors, snapshot_download  # noqa: PLC0415

    say(f"looking for {name} on the Hugging Face hub")
    try:
        folder = snapshot_download(
            name,
            revision=config.revision,
            cache_dir=config.download_dir,
            token=config.hf_token,
            allow_patterns=_WANTED,
            ignore_patterns=["original/*"],
        )
    except errors.GatedRepoError:
        raise ModelError(
            f"{name} asks for consent: accept its terms on the hub, then pass --hf-token (or HF_TOKEN)"
        ) from None
    except errors.RevisionNotFoundError:
        raise ModelError(f"{name} has no revision {config.revision}") from None
    except errors.RepositoryNotFoundError:
        raise ModelError(
            f"the hub has no public model {name} (private: pass --hf-token); {_INSTEAD}"
        ) from None
    except errors.HFValidationError as error:
        raise ModelError(f"{name} is neither a file here nor a model id: {error}") from None
    except (errors.HfHubHTTPError, OSError, RuntimeError) as error:
        raise ModelError(
            f"cannot reach the Hugging Face hub for {name} ({type(error).__name__}), and it is not in the "
            f"local cache; check the network or HF_ENDPOINT, or {_INSTEAD}"
        ) from error
    return _checked_folder(Path(folder))
