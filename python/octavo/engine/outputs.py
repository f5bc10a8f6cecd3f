"""What a request gives back."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Logprob:
    """Natural logarithm of a token's probability, its rank (1 is the most likely) and its text."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


SampleLogprobs = list[dict[int, Logprob]]
PromptLogprobs = list[dict[int, Logprob] | None]


@dataclass
class CompletionOutput:
    """One answer. `finish_reason` is stop, length, abort or error; `stop_reason` the stop string or token."""

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    cumulative_logprob: float | None = None
    logprobs: SampleLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    lora_request: None = None

    def finished(self) -> bool:
        """True once nothing more will come."""
        return self.finish_reason is not None


@dataclass
class RequestOutput:
    """The answers to one prompt so far. `prompt_logprobs` has None for the first token.

    What this release does not have is always None, so that scripts can ask for it.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    prompt_logprobs: PromptLogprobs | None = None
    outputs: list[CompletionOutput] = field(default_factory=list)
    finished: bool = False
    metrics: None = None
    lora_request: None = None
    encoder_prompt: None = None
    encoder_prompt_token_ids: None = None
    num_cached_tokens: int | None = None
    num_cache_creation_tokens: None = None
    prompt_token_id_logprobs: None = None
    kv_transfer_params: None = None
    ec_transfer_params: None = None
