"""How a request's tokens are drawn and when they end."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from octavo.config.option import nearest

_MAX_N = 16384
_MAX_STOP_STRINGS = 64


class RequestOutputKind(Enum):
    """What each output of a stream holds."""

    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


# Fields of other engines that this release does not act on, with the value that asks for nothing.
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "allowed_token_ids": (None,),
    "bad_words": (None, []),
    "best_of": (None, 1),
    "extra_args": (None, {}),
    "flat_logprobs": (False,),
    "guided_decoding": (None,),
    "logits_processors": (None, []),
    "logprob_token_ids": (None,),
    "prompt_logprob_start": (None,),
    "prompt_logprob_token_ids": (None,),
    "repetition_detection": (None,),
    "routed_experts_prompt_start": (0,),
    "skip_reading_prefix_cache": (None, False),
    "stream_interval": (None, 1),
    "structured_outputs": (None,),
    "thinking_token_budget": (None, -1),
    "trace_decode_token_ids": (None,),
    "truncate_prompt_tokens": (None,),
    "use_beam_search": (False, None),
    "watermarking": (None, False),
}


@dataclass(init=False)
class SamplingParams:
    """Parameters of one request. Bad values raise ValueError, unknown names TypeError, both naming the field.

    n: answers to one prompt; their seeds differ. temperature: 0 is greedy. top_p: in (0, 1]. top_k: 0 or -1
    is off. min_p: in [0, 1]. seed: None draws from the engine's. stop: strings that end the text (not part of
    it unless include_stop_str_in_output). stop_token_ids: tokens that end it. max_tokens: None is up to the
    context. min_tokens: no end before so many. logprobs, prompt_logprobs: how many alternatives to report.
    logit_bias: token id to a number added to its logit, clamped to [-100, 100]. cache_ttl_s: keep the prompt
    in the prefix cache for so many seconds after its last use, at most max_cache_ttl.
    """

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: list[str] = field(default_factory=list)
    stop_token_ids: list[int] = field(default_factory=list)
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    logit_bias: dict[int, float] | None = None
    cache_ttl_s: float | None = None

    def __init__(self, **given: Any) -> None:
        known = {item.name: item for item in fields(self)}
        for name, value in given.items():
            if name in _UNSUPPORTED:
                if not any(value is idle or value == idle for idle in _UNSUPPORTED[name]):
                    raise ValueError(f"{name} is not supported in this release")
            elif name not in known:
                hint = nearest(name, [*known, *_UNSUPPORTED])
                raise TypeError(f"SamplingParams has no field {name!r}{hint}")
        for name, item in known.items():
            factory = item.default_factory
            default = factory() if callable(factory) else item.default
            setattr(self, name, given.get(name, default))
        self._normalise()
        self._check()

    def clone(self) -> SamplingParams:
        """An independent copy."""
        return SamplingParams(**{item.name: _copied(getattr(self, item.name)) for item in fields(self)})

    def _normalise(self) -> None:
        self.stop = [self.stop] if isinstance(self.stop, str) else _list("stop", self.stop)
        self.stop_token_ids = list(dict.fromkeys(_list("stop_token_ids", self.stop_token_ids)))
        if self.seed == -1:
            self.seed = None
        if self.top_k == -1:
            self.top_k = 0
        for name in ("logprobs", "prompt_logprobs"):
            if isinstance(getattr(self, name), bool):
                setattr(self, name, 1 if getattr(self, name) else None)
        if self.logit_bias:
            try:
                self.logit_bias = {
                    int(k): min(100.0, max(-100.0, float(v))) for k, v in self.logit_bias.items()
                }
            except (AttributeError, TypeError, ValueError):
                raise ValueError(
                    f"logit_bias must map token ids to numbers, not {self.logit_bias!r:.60}"
                ) from None

    def _check(self) -> None:
        _integer("n", self.n, 1, _MAX_N)
        _number("presence_penalty", self.presence_penalty, -2, 2)
        _number("frequency_penalty", self.frequency_penalty, -2, 2)
        _number("repetition_penalty", self.repetition_penalty, 0, math.inf, above=True)
        _number("temperature", self.temperature, 0, 2)
        _number("top_p", self.top_p, 0, 1, above=True)
        _integer("top_k", self.top_k, 0, 2**31 - 1)
        _number("min_p", self.min_p, 0, 1)
        if self.seed is not None:
            _integer("seed", self.seed, -(2**63), 2**63 - 1)
        if self.max_tokens is not None:
            _integer("max_tokens", self.max_tokens, 1, 2**31 - 1)
        _integer("min_tokens", self.min_tokens, 0, self.max_tokens or 2**31 - 1)
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None:
                _integer(name, getattr(self, name), -1, 2**31 - 1)
        if self.cache_ttl_s is not None:
            _number("cache_ttl_s", self.cache_ttl_s, 0, math.inf)
        for token in self.stop_token_ids:
            _integer("stop_token_ids", token, 0, 2**31 - 1)
        if len(self.stop) > _MAX_STOP_STRINGS:
            raise ValueError(f"stop may have at most {_MAX_STOP_STRINGS} strings, not {len(self.stop)}")
        if not all(isinstance(text, str) and text for text in self.stop):
            raise ValueError(f"stop must be non-empty strings, not {self.stop!r}")
        if self.stop and not self.detokenize:
            raise ValueError("stop strings need detokenize=True")
        if self.n > 1 and self.temperature == 0:
            raise ValueError(
                f"n must be 1 with temperature 0 (greedy), not {self.n}: all answers would be equal"
            )


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, (list, dict)) else value


def _list(name: str, value: Any) -> list[Any]:
    try:
        return list(value or [])
    except TypeError:
        raise ValueError(f"{name} must be a list, not {value!r:.60}") from None


def _integer(name: str, value: Any, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        bound = f"at least {low}" if high >= 2**31 - 1 else f"from {low} to {high}"
        raise ValueError(f"{name} must be an integer {bound}, not {value!r}")


def _number(name: str, value: Any, low: float, high: float, *, above: bool = False) -> None:
    numeric = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not numeric or not low <= value <= high or (above and value <= low):
        start = f"above {low:g}" if above else f"at least {low:g}"
        end = "" if high == math.inf else f" and at most {high:g}"
        raise ValueError(f"{name} must be a number {start}{end}, not {value!r}")
