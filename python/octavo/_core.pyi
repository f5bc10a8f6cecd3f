"""Octavo's Rust core."""

import os
from collections.abc import Sequence
from typing import Any, final

from typing_extensions import Buffer

from octavo.boundary import Alternative, Chat, FrameLayout, Limits, PromptSource, Sample, SamplingOptions

__all__ = [
    "CpuKernels",
    "CpuProgram",
    "Door",
    "EngineClient",
    "EngineHandle",
    "Int8Weight",
    "KvPublisher",
    "Listener",
    "OverloadedError",
    "PackedWeight",
    "Planned",
    "QuantizedWeight",
    "Server",
    "Session",
    "TextModel",
    "Update",
    "__version__",
    "frame_layout",
    "read_gguf",
    "start_logging",
]

__version__: str

class OverloadedError(RuntimeError):
    """A limit is reached for now; the same request may succeed later."""

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

@final
class Planned:
    """What the step loop does next."""

    Step: Planned
    Idle: Planned
    Stopped: Planned

@final
class KvPublisher:
    """A publisher of KV events, bound to its endpoints. An engine takes it over."""

    def __new__(cls, config: str) -> KvPublisher: ...

@final
class EngineHandle:
    """The engine core between the step loop and the doors."""

    def __new__(
        cls,
        limits: Limits,
        metrics: str,
        max_queued_tokens: int | None = None,
        publisher: KvPublisher | None = None,
    ) -> EngineHandle: ...
    def attach_disk(
        self,
        host: int,
        host_blocks: int,
        block_bytes: int,
        path: str,
        capacity_bytes: int,
        fingerprint: bytes,
    ) -> int:
        """Put a disk tier below the host tier whose memory has the descriptor `host`.

        Returns how many blocks of earlier runs it has. ValueError where the folder cannot be used.
        """

    def plan(self, frame: Buffer, timeout_s: float) -> Planned:
        """Plan the next step into `frame`, waiting up to `timeout_s` seconds if there is nothing to do."""

    def commit(self, result: Buffer) -> None:
        """Take in the result of the oldest step in flight."""

    def worker_is(self, pid: int) -> None:
        """The worker is this process from now on, for metrics."""

    def lost_worker(self) -> None:
        """The worker has died and is being started again, until `recover`."""

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

    def metrics(self) -> list[Sample]:
        """What `/metrics` exports."""

    def stats(self) -> dict[str, float]:
        """Counters and levels of the core."""

@final
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

@final
class EngineClient:
    """An engine together with the model's text side; `config` is JSON."""

    def __new__(cls, engine: EngineHandle, text: TextModel, config: str) -> EngineClient: ...

@final
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

@final
class Door:
    """Threads that tokenize and detokenize, shared by all sessions of an engine."""

    def __new__(cls, client: EngineClient, threads: int) -> Door: ...
    def session(self) -> Session:
        """A place to submit requests and to read their updates."""

@final
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

@final
class Listener:
    """A socket that is bound; `config` is the server's options as JSON."""

    def __new__(cls, config: str) -> Listener: ...
    def serve(self, client: EngineClient, threads: int) -> Server:
        """Serve from threads of its own; once only. Signals drain the server, a second one stops it."""

@final
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

# Address, code of the element type (0 float32, 1 bfloat16, 2 float16), rows, elements from row to row.
_Matrix = tuple[int, int, int, int]
# Address, code of the element type, elements.
_Vector = tuple[int, int, int]
# Address, code of the element type, blocks, KV heads, tokens in a block, size of a head.
_Cache = tuple[int, int, int, int, int, int]

@final
class CpuKernels:
    """An instruction set and threads. Addresses are the caller's to check: `octavo.ops.cpu` does."""

    def __new__(cls, threads: int, cores: list[int]) -> CpuKernels: ...
    @property
    def isa(self) -> str:
        """The name of the instruction set in use."""

    def rms_norm(
        self, x: _Matrix, residual: _Matrix | None, parts: int, weight: _Vector, eps: float, out: _Matrix
    ) -> None:
        """`out = norm(x) * weight` of each part of a row; with `residual`, of `residual += x`."""

    def gate_and_mul(self, gelu: bool, x: _Matrix, n: int, out: _Matrix) -> None:
        """`out = silu(gate) * up` of rows of 2 n."""

    def scale(self, x: _Matrix, n: int, factor: float) -> None:
        """Multiply rows of `n` elements in place."""

    def embedding(self, table: _Matrix, n: int, ids: int, wide: bool, out: _Matrix) -> None:
        """Rows of `table` by id; `wide` ids are int64, others int32."""

    def rotary(
        self,
        positions: int,
        q: _Matrix,
        q_heads: int,
        k: _Matrix,
        k_heads: int,
        head_dim: int,
        table: tuple[int, int, int],
        interleaved: bool,
    ) -> None:
        """Rotate heads of `q` and `k` in place."""

    def write_kv(self, k: _Matrix, v: _Matrix, kv_cache: _Cache, slots: int) -> None:
        """Write keys and values into their slots of the cache."""

    def attention(
        self,
        q: _Matrix,
        heads: int,
        kv_cache: _Cache,
        rows: tuple[int, int, int, int, int],
        scale: float,
        window: int | None,
        softcap: float | None,
        out: _Matrix,
    ) -> None:
        """Attention of all rows over the paged cache."""

    def record(self, on: bool) -> None:
        """Whether to keep calls from here on; those kept before are dropped."""

    def recorded(
        self,
        tokens: int,
        ids: int,
        positions: int,
        groups: Sequence[tuple[tuple[int, int, int, int, int], int]],
        out: int,
        made: Sequence[tuple[int, int]],
    ) -> CpuProgram:
        """The kept calls as one pass. Raises ValueError where they use anything but inputs and `made`."""

    def greedy(self, logits: _Matrix, vocab: int, values: int, tokens: int) -> None:
        """The largest logit of each row and its token."""

    def token_logprobs(
        self, logits: _Matrix, vocab: int, tokens: int, k: int, out: tuple[int, int, int, int]
    ) -> None:
        """Log-probability and rank of each row's token, and the `k` most likely."""

    def draw(
        self, logits: _Matrix, vocab: int, parameters: tuple[int, int, int, int, int], tokens: int
    ) -> None:
        """Draw a token a row."""

@final
class CpuProgram:
    """A recorded forward pass."""

    def run(
        self,
        tokens: int,
        ids: int,
        positions: int,
        groups: Sequence[tuple[tuple[int, int, int, int, int], int]],
        out: int,
    ) -> None:
        """Run it on `tokens` tokens: addresses of ids, positions, each group's rows and slots, the output."""

    def __len__(self) -> int: ...

@final
class Int8Weight:
    """An 8-bit weight in the kernels' own order."""

    def __new__(cls, kernels: CpuKernels, data: int, scale: int, n: int, k: int, bias: int) -> Int8Weight: ...
    @property
    def size_bytes(self) -> int:
        """Bytes held."""

    def linear(self, x: _Matrix, out: _Matrix) -> None:
        """`out = quantize(x) @ weight.T * scales + bias`."""

@final
class PackedWeight:
    """A weight in the kernels' own order."""

    def __new__(
        cls, kernels: CpuKernels, data: int, code: int, n: int, k: int, bias: int
    ) -> PackedWeight: ...
    @property
    def size_bytes(self) -> int:
        """Bytes held."""

    @property
    def dtype(self) -> int:
        """The code of the type in which it is held."""

    def linear(self, x: _Matrix, out: _Matrix) -> None:
        """`out = x @ weight.T + bias`."""

    def rows(self, ids: int, wide: bool, out: _Matrix) -> None:
        """Rows of the weight by id, of its type and without the bias; `wide` ids are int64, others int32."""

@final
class QuantizedWeight:
    """A weight of blocks in the kernels' own order."""

    def __new__(
        cls, kernels: CpuKernels, ggml_type: int, data: tuple[int, int], n: int, k: int, bias: int
    ) -> QuantizedWeight: ...
    @property
    def size_bytes(self) -> int:
        """Bytes held."""

    def linear(self, x: _Matrix, out: _Matrix) -> None:
        """`out = x @ weight.T + bias`, inputs rounded to 8 bits."""

    def rows(self, ids: int, wide: bool, out: _Matrix) -> None:
        """Rows of the weight by id; `wide` ids are int64, others int32."""

    @staticmethod
    def quantize(kernels: CpuKernels, ggml_type: int, data: int, code: int, n: int, k: int) -> bytes:
        """Blocks of a contiguous weight of floats; ggml types Q8_0 and Q4_1 alone."""
