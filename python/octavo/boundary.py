"""The shapes of what is handed to the extension and what it hands back."""

from __future__ import annotations

from typing import TypedDict

KVGroup = tuple[str, int, int]
"""A layer group beside the spine: what it keeps of a sequence ("last" tokens of a window, a "state" every so
many blocks, a "fixed" number of blocks), that number, and its blocks.
"""


class Limits(TypedDict):
    """What bounds an engine, resolved."""

    block_size: int
    num_blocks: int
    groups: list[KVGroup]
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    long_prefill_token_threshold: int
    max_num_queued_reqs: int
    max_logprobs: int
    vocab_size: int
    watermark: float
    enable_prefix_caching: bool
    max_pinned_share: float
    host_blocks: int
    host_load_tokens: float
    disk_tier: bool
    tenant_weights: list[tuple[str, float]]
    policy: str
    pipeline_depth: int


Column = tuple[str, str, int, list[int]]
"""Name, dtype (int32, float32 or int64), offset in bytes, shape."""


class FrameLayout(TypedDict):
    """Where each column of a frame and of its result lies."""

    frame_bytes: int
    frame: list[Column]
    result_bytes: int
    result: list[Column]


Histogram = tuple[int, float, list[tuple[float, int]]]
"""Observations, their sum, and how many were at most each bound."""

Sample = tuple[str, dict[str, str], str, float | Histogram]
"""A metric's name, labels, type (counter, gauge or histogram) and value."""


class Chat(TypedDict):
    """A conversation; messages, tools and template_kwargs are JSON."""

    messages: str
    tools: str | None
    template: str | None
    template_kwargs: str
    add_generation_prompt: bool
    continue_final_message: bool


PromptSource = str | list[int] | Chat
"""Text, token ids, or a conversation for the chat template."""


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
    cache_ttl_s: float | None


Alternative = tuple[int, float, int, str]
"""Token, natural logarithm of its probability, rank (1 is the most likely), text."""
