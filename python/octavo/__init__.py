"""Octavo serves large language models from paged KV memory.

Importing this package is cheap: names below are loaded when they are first used.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.config import EngineConfig as EngineConfig
    from octavo.engine import LLM as LLM
    from octavo.engine import AsyncEngine as AsyncEngine
    from octavo.engine import CompletionOutput as CompletionOutput
    from octavo.engine import Engine as Engine
    from octavo.engine import Logprob as Logprob
    from octavo.engine import RequestOutput as RequestOutput
    from octavo.engine import RequestOutputKind as RequestOutputKind
    from octavo.engine import SamplingParams as SamplingParams
    from octavo.engine import TextPrompt as TextPrompt
    from octavo.engine import TokensPrompt as TokensPrompt

_LAZY = {
    "AsyncEngine": "octavo.engine",
    "CompletionOutput": "octavo.engine",
    "Engine": "octavo.engine",
    "EngineConfig": "octavo.config",
    "LLM": "octavo.engine",
    "Logprob": "octavo.engine",
    "RequestOutput": "octavo.engine",
    "RequestOutputKind": "octavo.engine",
    "SamplingParams": "octavo.engine",
    "TextPrompt": "octavo.engine",
    "TokensPrompt": "octavo.engine",
}

__all__ = [
    "LLM",
    "AsyncEngine",
    "CompletionOutput",
    "Engine",
    "EngineConfig",
    "Logprob",
    "RequestOutput",
    "RequestOutputKind",
    "SamplingParams",
    "TextPrompt",
    "TokensPrompt",
]


def __getattr__(name: str) -> Any:
    """Load a public name, or the version, on first use."""
    if name == "__version__":
        try:
            value: Any = version("octavo")
        except PackageNotFoundError:
            value = import_module("octavo._core").__version__
    elif name in _LAZY:
        value = getattr(import_module(_LAZY[name]), name)
    else:
        raise AttributeError(f"module 'octavo' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, "__version__"})
