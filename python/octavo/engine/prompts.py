"""The forms in which prompts, conversations and parameters are given, made one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, TypeGuard

from octavo.engine.sampling_params import SamplingParams

if TYPE_CHECKING:
    from octavo.boundary import Chat, PromptSource, SamplingOptions


class TextPrompt(TypedDict):
    """A prompt as text."""

    prompt: str
    cache_salt: NotRequired[str]


class TokensPrompt(TypedDict):
    """A prompt as token ids; `prompt` is the text that they stand for, if that is known."""

    prompt_token_ids: list[int]
    prompt: NotRequired[str]
    cache_salt: NotRequired[str]


Prompt = str | list[int] | Mapping[str, Any]
"""Text, token ids, or a mapping with `prompt` or `prompt_token_ids`, and maybe `cache_salt`."""
Messages = Sequence[Mapping[str, Any]]
"""A conversation: mappings with `role` and `content`."""


_MAX_IDS = 1 << 32


def prompt_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt or several, as a list."""
    if isinstance(prompts, (str, Mapping)) or _is_tokens(prompts):
        return [prompts]  # type: ignore[list-item]
    if isinstance(prompts, (bytes, bytearray)) or not isinstance(prompts, Sequence):
        raise ValueError(f"prompts must be text, token ids or mappings, not {type(prompts).__name__}")
    return list(prompts)  # type: ignore[arg-type]


def prompt_source(prompt: Prompt) -> tuple[PromptSource, str | None]:
    """What to submit for a prompt, and its cache salt. Raises ValueError that says what is wrong."""
    if isinstance(prompt, str):
        return _text(prompt), None
    if not isinstance(prompt, Mapping):
        return _tokens(prompt), None
    salt = prompt.get("cache_salt")
    extra = [key for key in prompt if key not in ("prompt", "prompt_token_ids", "cache_salt") and prompt[key]]
    if extra:
        raise ValueError(f"prompt: {extra[0]} is not supported in this release")
    if prompt.get("prompt_token_ids") is not None:
        return _tokens(prompt["prompt_token_ids"]), salt
    if not isinstance(prompt.get("prompt"), str):
        raise ValueError("prompt: a mapping needs prompt (text) or prompt_token_ids")
    return _text(prompt["prompt"]), salt


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"prompt: character {error.start} is half of a surrogate pair, not text") from None
    return value


def _tokens(value: Any) -> list[int]:
    if not _is_tokens(value):
        raise ValueError(
            f"prompt_token_ids must be a non-empty list of token ids (or text), not {value!r:.60}"
        )
    return list(value)


def _is_tokens(value: Any) -> bool:
    is_list = isinstance(value, Sequence) and not isinstance(value, (str, bytes)) and len(value) > 0
    return is_list and all(
        isinstance(item, int) and not isinstance(item, bool) and 0 <= item < _MAX_IDS for item in value
    )


def conversation_list(messages: Messages | Sequence[Messages]) -> list[Messages]:
    """One conversation or several, as a list."""
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise ValueError("messages must be a non-empty list of messages, or a list of such lists")
    if isinstance(messages[0], Mapping):
        return [messages]  # type: ignore[list-item]
    return list(messages)  # type: ignore[arg-type]


def chat_source(
    messages: Messages,
    *,
    chat_template: str | None,
    add_generation_prompt: bool,
    continue_final_message: bool,
    tools: Sequence[Mapping[str, Any]] | None,
    chat_template_kwargs: Mapping[str, Any] | None,
) -> Chat:
    """What to submit for a conversation."""
    try:
        return {
            "messages": json.dumps(list(messages)),
            "tools": None if tools is None else json.dumps(list(tools)),
            "template": chat_template,
            "template_kwargs": json.dumps(dict(chat_template_kwargs or {})),
            "add_generation_prompt": add_generation_prompt,
            "continue_final_message": continue_final_message,
        }
    except (TypeError, ValueError) as error:
        raise ValueError(f"messages must hold plain data (text, numbers, lists, mappings): {error}") from None


def is_conversation(prompt: Prompt | Messages) -> TypeGuard[Messages]:
    """True for a list of messages, False for any form of prompt."""
    return isinstance(prompt, Sequence) and bool(prompt) and isinstance(prompt[0], Mapping)


def params_list(
    params: SamplingParams | Sequence[SamplingParams] | None, count: int, default: SamplingParams
) -> list[SamplingParams]:
    """One parameter object a prompt; a single one goes for all."""
    if params is None:
        return [default] * count
    if isinstance(params, SamplingParams):
        return [params] * count
    if isinstance(params, (str, bytes)) or not isinstance(params, Sequence):
        raise ValueError(f"sampling_params must be SamplingParams or a list of them, not {params!r:.60}")
    if len(params) != count:
        raise ValueError(f"sampling_params has {len(params)} entries for {count} prompts")
    return list(params)


def sampling_options(
    params: SamplingParams, *, seed: int, priority: int, cache_salt: str | None
) -> SamplingOptions:
    """The parameters as the core takes them; `seed` is used where they have none."""
    return {
        "n": params.n,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k,
        "min_p": params.min_p,
        "presence_penalty": params.presence_penalty,
        "frequency_penalty": params.frequency_penalty,
        "repetition_penalty": params.repetition_penalty,
        "seed": seed if params.seed is None else params.seed,
        "stop": params.stop,
        "stop_token_ids": params.stop_token_ids,
        "include_stop_str_in_output": params.include_stop_str_in_output,
        "ignore_eos": params.ignore_eos,
        "max_tokens": params.max_tokens,
        "min_tokens": params.min_tokens,
        "logprobs": params.logprobs,
        "prompt_logprobs": params.prompt_logprobs,
        "logit_bias": list((params.logit_bias or {}).items()),
        "detokenize": params.detokenize,
        "skip_special_tokens": params.skip_special_tokens,
        "priority": priority,
        "cache_salt": cache_salt,
        "cache_ttl_s": params.cache_ttl_s,
    }
