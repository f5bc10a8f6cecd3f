"""The sampler: parameters by slot, and tokens from logits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from octavo.sampling.philox import uniform
from octavo.sampling.token_lists import TokenLists
from octavo.sampling.tokens_seen import TokensSeen

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from octavo.ops import Ops


class Needs(IntFlag):
    """What a slot asks for beyond the most likely token."""

    RANDOM = 1
    PENALTIES = 2
    BIAS = 4
    SUPPRESS = 8
    LOGPROBS = 16


@dataclass(frozen=True, slots=True)
class NewSlot:
    """A request that begins."""

    slot: int
    prompt_len: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    presence: float
    frequency: float
    repetition: float
    seed: int
    logprobs: int
    """Alternatives asked for; -1 for no log-probabilities."""
    min_tokens: int
    history: NDArray[np.int32]
    """Tokens so far; empty where no penalty needs them."""
    suppress: NDArray[np.int32]
    """Tokens that may not be sampled before `min_tokens` are out."""
    bias_ids: NDArray[np.int32]
    bias_values: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Log-probabilities of some rows under their raw logits."""

    logprob: Tensor
    """float32 [n], of the row's token."""
    rank: Tensor
    """int32 [n]; 1 is the most likely."""
    top_id: Tensor
    """int32 [n, k], best first."""
    top_logprob: Tensor
    """float32 [n, k]."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """Outcome of a step, on the device."""

    tokens: Tensor
    """int64 [n]."""
    finite: Tensor
    """bool [n]: false where logits were NaN or infinite; the token is then meaningless."""
    logprobs: Logprobs | None
    logprob_rows: NDArray[np.int64]
    """Which of the n rows `logprobs` are of."""


_NO_ROWS = np.zeros(0, np.int64)


class Sampler:
    """Keeps every slot's parameters and draws tokens for many rows at once."""

    def __init__(
        self, ops: Ops, device: torch.device, vocab_size: int, slots: int, max_logprobs: int
    ) -> None:
        self._ops = ops
        self._device = device
        self.vocab_size = vocab_size
        self._top = min(max_logprobs, vocab_size)
        self._needs = np.zeros(slots, np.int32)
        self._seed = np.zeros(slots, np.int64)
        self._prompt_len = np.zeros(slots, np.int64)
        self._min_tokens = np.zeros(slots, np.int64)
        self._floats = np.zeros((slots, 6), np.float32)
        self._top_k = np.zeros(slots, np.int32)
        self._seen = TokensSeen(device, vocab_size, slots)
        self._bias = TokenLists(device, slots)
        self._suppress = TokenLists(device, slots)

    def add(self, new: NewSlot) -> None:
        """Begins a slot."""
        slot = new.slot
        self._seed[slot], self._prompt_len[slot], self._min_tokens[slot] = (
            new.seed,
            new.prompt_len,
            new.min_tokens,
        )
        self._top_k[slot] = new.top_k
        self._floats[slot] = (
            new.temperature,
            new.top_p,
            new.min_p,
            new.presence,
            new.frequency,
            new.repetition,
        )
        needs = Needs(0)
        if new.temperature > 0:
            needs |= Needs.RANDOM
        if new.logprobs >= 0:
            needs |= Needs.LOGPROBS
        self._seen.free(np.array([slot]))
        if new.presence != 0 or new.frequency != 0 or new.repetition != 1:
            needs |= Needs.PENALTIES
            self._seen.add(slot, new.history, new.prompt_len)
        if len(new.bias_ids):
            needs |= Needs.BIAS
            self._bias.put(slot, new.bias_ids, new.bias_values)
        if len(new.suppress) and new.min_tokens > 0:
            needs |= Needs.SUPPRESS
            self._suppress.put(slot, new.suppress)
        self._needs[slot] = needs

    def free(self, slots: NDArray[Any]) -> None:
        """Ends slots."""
        self._seen.free(slots)
        self._needs[slots] = 0

    def sample(self, logits: Tensor, slots: NDArray[Any], positions: NDArray[Any]) -> Sampled:
        """Draws a token for each row of `logits` float32 [n, vocab], which may be overwritten.

        `slots` [n], distinct; `positions` [n]: of the token to draw, counted from the start of the prompt.
        """
        values, tokens = self._ops.greedy(logits)
        finite = torch.isfinite(values)
        needs = self._needs[slots]
        every = int(np.bitwise_or.reduce(needs)) if len(needs) else 0
        if not every:
            return Sampled(tokens, finite, None, _NO_ROWS)
        asked = np.flatnonzero(needs & Needs.LOGPROBS)
        raw = logits[self._index(asked)] if len(asked) else None
        if self._edit(logits, slots, positions, needs):
            tokens = self._ops.greedy(logits)[1]
        if every & Needs.RANDOM:
            self._draw(tokens, logits, slots, positions, np.flatnonzero(needs & Needs.RANDOM))
        penalized = np.flatnonzero(needs & Needs.PENALTIES)
        if len(penalized):
            self._seen.count(self._seen.rows(slots[penalized]), tokens[self._index(penalized)])
        logprobs = None
        if raw is not None:
            chosen = tokens[self._index(asked)]
            logprobs = self.logprobs(raw, chosen)
        return Sampled(tokens, finite, logprobs, asked)

    def logprobs(self, logits: Tensor, tokens: Tensor) -> Logprobs:
        """Of `tokens` int64 [n] under raw `logits` [n, vocab]."""
        return Logprobs(*self._ops.token_logprobs(logits, tokens, self._top))

    def _draw(
        self, tokens: Tensor, logits: Tensor, slots: NDArray[Any], positions: NDArray[Any], rows: NDArray[Any]
    ) -> None:
        """Replaces the tokens of `rows` by random ones."""
        chosen, index = slots[rows], self._index(rows)
        temperature, top_p, min_p, *_ = self._to_device(self._floats[chosen]).unbind(1)
        draws = self._to_device(uniform(self._seed[chosen], positions[rows]))
        top_k = self._to_device(self._top_k[chosen])
        part = logits if len(rows) == len(logits) else logits[index]
        tokens[index] = self._ops.draw(
            part, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, uniform=draws
        )

    def _edit(
        self, logits: Tensor, slots: NDArray[Any], positions: NDArray[Any], needs: NDArray[Any]
    ) -> bool:
        """Applies bias, suppression and penalties in place. Returns whether there were any."""
        early = positions - self._prompt_len[slots] < self._min_tokens[slots]
        biased = np.flatnonzero(needs & Needs.BIAS)
        suppressed = np.flatnonzero((needs & Needs.SUPPRESS).astype(bool) & early)
        penalized = np.flatnonzero(needs & Needs.PENALTIES)
        if len(biased):
            self._bias.add_to(logits, self._index(biased), self._index(slots[biased]))
        if len(suppressed):
            self._suppress.forbid_in(logits, self._index(suppressed), self._index(slots[suppressed]))
        if len(penalized):
            index, seen = self._index(penalized), self._seen.rows(slots[penalized])
            *_, presence, frequency, repetition = self._to_device(self._floats[slots[penalized]]).unbind(1)
            logits[index] = self._ops.penalize(
                logits[index],
                in_prompt=self._seen.in_prompt[seen],
                output_count=self._seen.output_count[seen],
                presence=presence,
                frequency=frequency,
                repetition=repetition,
            )
        return bool(len(biased) or len(suppressed) or len(penalized))

    def _index(self, rows: NDArray[Any]) -> Tensor:
        return self._to_device(rows.astype(np.int64, copy=False))

    def _to_device(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self._device, non_blocking=True)
