"""Octavo's Rust core."""

import os
from typing import Any, TypedDict

from typing_extensions import Buffer

__version__: str

class OverloadedError(RuntimeError):
    """A limit is reached for now; the same request may succeed later."""

class Limits(TypedDict):
    """What bounds an engine, resolved."""

    block_size: int
    num_blocks: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    long_prefill_token_threshold: int
    max_num_queued_reqs: int
    max_logprobs: int
    vocab_size: int
    watermark: float
    enable_prefix_caching: bool
    policy: str
    pipeline_depth: int

# Name, dtype (int32, float32 or int64), offset in bytes, shape.
_Column = tuple[str, str, int, list[int]]

class FrameLayout(TypedDict):
    """Where each column of a frame and of its result lies."""

    frame_bytes: int
    frame: list[_Column]
    result_bytes: int
    result: list[_Column]

def frame_layout(limits: Limits) -> FrameLayout:
    """The layout for engines with these limits. ValueError if the limits make no sense."""

def read_gguf(
    path: str | os.PathLike[str],
) -> tuple[dict[str, Any], list[tuple[str, str, list[int], int, int]]]:
    """A GGUF file's metadata, and its tensors: name, type name, row-major shape, offset and length in bytes.

    OSError if it cannot be read, ValueError if it is not a good GGUF file.
    """

def start_logging(level: str) -> None:
    """Log lines of the Rust side from `level` (debug, info, warning, error) upwards to standard error."""

class Planned:
    """What the step loop does next."""

    Step: Planned
    Idle: Planned
    Stopped: Planned

class EngineHandle:
    """The engine core between the step loop and the doors."""

    def __new__(cls, limits: Limits, model: str, max_queued_tokens: int | None = None) -> EngineHandle: ...
    def plan(self, frame: Buffer, timeout_s: float) -> Planned:
        """Plan the next step into `frame`, waiting up to `timeout_s` seconds if there is nothing to do."""

    def commit(self, result: Buffer) -> None:
        """Take in the result of the oldest step in flight."""

    def recover(self) -> None:
        """The worker has started again; requests are computed again from their tokens."""

    def stop(self) -> None:
        """End all requests as aborted and refuse more; the loop leaves."""

    def fail(self, message: str) -> None:
        """End all requests with `message`: the engine cannot go on."""

    def failure(self) -> str | None:
        """Why the engine has failed, if it has."""

    def reset_prefix_cache(self) -> bool:
        """Forget cached prefixes that no request uses; False when some are in use and stay."""

    def stats(self) -> dict[str, float]:
        """Counters and levels of the core."""

class Chat(TypedDict):
    """A conversation; messages, tools and template_kwargs are JSON."""

    messages: str
    tools: str | None
    template: str | None
    template_kwargs: str
    add_generation_prompt: bool
    continue_final_message: bool

PromptSource = str | list[int] | Chat

class TextModel:
    """Tokenizer, chat template and generation defaults of a model."""

    def __new__(
        cls,
        model: str | os.PathLike[str],
        tokenizer: str | os.PathLike[str] | None,
        chat_template: str | None,
        content_format: str,
    ) -> TextModel: ...
    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """Tokens of `text`; special tokens in it are recognised."""

    def decode(self, tokens: list[int], skip_special_tokens: bool) -> str:
        """Text of tokens."""

    def render(self, chat: Chat) -> str:
        """The text that a conversation becomes. ValueError where the template refuses it."""

    @property
    def has_chat_template(self) -> bool:
        """True when conversations can be rendered."""

    @property
    def vocab_size(self) -> int:
        """Tokens in the vocabulary."""

    @property
    def bos_token_id(self) -> int | None:
        """The beginning-of-sequence token."""

    @property
    def eos_token_id(self) -> int | None:
        """The tokenizer's own end-of-sequence token."""

    @property
    def eos_token_ids(self) -> list[int]:
        """Tokens that end the output."""

    @property
    def sampling_defaults(self) -> dict[str, Any]:
        """Sampling values that the model's authors set."""

class EngineClient:
    """An engine together with the model's text side; `config` is JSON."""

    def __new__(cls, engine: EngineHandle, text: TextModel, config: str) -> EngineClient: ...

class SamplingOptions(TypedDict):
    """How to continue a prompt; None takes the model's default."""

    n: int
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float | None
    seed: int | None
    stop: list[str]
    stop_token_ids: list[int]
    include_stop_str_in_output: bool
    ignore_eos: bool
    max_tokens: int | None
    min_tokens: int
    logprobs: int | None
    prompt_logprobs: int | None
    logit_bias: list[tuple[int, float]]
    detokenize: bool
    skip_special_tokens: bool
    priority: int
    cache_salt: str | None

# Token, natural logarithm of its probability, rank, text.
Alternative = tuple[int, float, int, str]

class Update:
    """News of one request: its prompt (first of all), more of one choice, or its end."""

    @property
    def id(self) -> int:
        """As `Session.submit` returned it."""

    @property
    def prompt_token_ids(self) -> list[int] | None:
        """The prompt's tokens, in the request's first update alone."""

    @property
    def prompt(self) -> str | None:
        """The prompt as text, where a chat template made it; with `prompt_token_ids`."""

    @property
    def cached_tokens(self) -> int | None:
        """Prompt tokens that came from the prefix cache; in the last update alone."""

    @property
    def prompt_logprobs(self) -> list[list[Alternative]]:
        """Of prompt tokens 1, 2, ...: the token itself, then others; in the last update alone."""

    @property
    def index(self) -> int:
        """Which choice the rest is about."""

    @property
    def text(self) -> str:
        """Text to append."""

    @property
    def token_ids(self) -> list[int]:
        """Tokens to append."""

    @property
    def logprobs(self) -> list[list[Alternative]]:
        """One entry a token, where asked: the token itself, then others."""

    @property
    def finish_reason(self) -> str | None:
        """Why the choice has ended, once it has: stop, length, abort or error."""

    @property
    def stop_reason(self) -> int | str | None:
        """The stop string or stop token that ended the choice."""

    @property
    def last(self) -> bool:
        """True in the request's last update."""

    def raise_failure(self) -> None:
        """Raise the request's failure, if it has failed."""

class Door:
    """Threads that tokenize and detokenize, shared by all sessions of an engine."""

    def __new__(cls, client: EngineClient, threads: int) -> Door: ...
    def session(self) -> Session:
        """A place to submit requests and to read their updates."""

class Session:
    """Requests of one caller and their updates."""

    def submit(self, requests: list[tuple[PromptSource, SamplingOptions]], whole: bool) -> list[int]:
        """Start requests and return their ids; with `whole`, a choice is reported once it has ended."""

    def wait(self, timeout_s: float) -> list[Update]:
        """All updates since the last call, waiting up to `timeout_s` seconds for the first."""

    def abort(self, ids: list[int]) -> None:
        """Abort requests; nothing more is reported of them."""

    def close(self) -> None:
        """Abort all requests."""

class Listener:
    """A socket that is bound; `config` is the server's options as JSON."""

    def __new__(cls, config: str) -> Listener: ...
    def serve(self, client: EngineClient, threads: int) -> Server:
        """Serve from threads of its own; once only. Signals drain the server, a second one stops it."""

class Server:
    """A running server; it ends when it is dropped."""

    @property
    def address(self) -> str:
        """http://127.0.0.1:8000 or unix:/path."""

    @property
    def port(self) -> int:
        """The port, 0 on a Unix socket."""

    def shutdown(self) -> None:
        """Drain, then stop; a second call stops at once."""

    def wait(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` seconds; True once the server has ended."""
