"""The doors to an engine in this process. Importing it loads the extension, not torch."""

from octavo.engine.async_engine import AsyncEngine as AsyncEngine
from octavo.engine.engine import Engine as Engine
from octavo.engine.errors import EngineDeadError as EngineDeadError
from octavo.engine.errors import ModelError as ModelError
from octavo.engine.llm import LLM as LLM
from octavo.engine.outputs import CompletionOutput as CompletionOutput
from octavo.engine.outputs import Logprob as Logprob
from octavo.engine.outputs import RequestOutput as RequestOutput
from octavo.engine.prompts import TextPrompt as TextPrompt
from octavo.engine.prompts import TokensPrompt as TokensPrompt
from octavo.engine.sampling_params import RequestOutputKind as RequestOutputKind
from octavo.engine.sampling_params import SamplingParams as SamplingParams

__all__ = [
    "LLM",
    "AsyncEngine",
    "CompletionOutput",
    "Engine",
    "EngineDeadError",
    "Logprob",
    "ModelError",
    "RequestOutput",
    "RequestOutputKind",
    "SamplingParams",
    "TextPrompt",
    "TokensPrompt",
]
