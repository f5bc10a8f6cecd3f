"""Octavo's Rust core."""

import os
from typing import Any, TypedDict

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

def read_gguf(path: str | os.PathLike[str]) -> tuple[dict[str, Any], list[tuple[str, str, list[int], int, int]]]:
    """A GGUF file's metadata, and its tensors: name, type name, row-major shape, offset and length in bytes.

    OSError if it cannot be read, ValueError if it is not a good GGUF file.
    """
