"""The sampler: what a request asks for, and rows that do not disturb each other."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from octavo import ops
from octavo.sampling import NewSlot, Sampler

VOCAB = 2500
NONE = np.zeros(0, np.int32)
PLAIN = NewSlot(
    slot=0,
    prompt_len=4,
    temperature=0.0,
    top_k=0,
    top_p=1.0,
    min_p=0.0,
    presence=0.0,
    frequency=0.0,
    repetition=1.0,
    seed=0,
    logprobs=-1,
    min_tokens=0,
    history=NONE,
    suppress=NONE,
    bias_ids=NONE,
    bias_values=np.zeros(0, np.float32),
)


def sampler(slots: int = 128) -> Sampler:
    device = torch.device("cpu")
    return Sampler(ops.select(device), device, VOCAB, slots, max_logprobs=5)


def ints(*values: int) -> Any:
    return np.array(values, np.int32)


def one(new: NewSlot, logits: Tensor, positions: list[int]) -> list[int]:
    """Tokens that a request alone gets, one step after another, from the same logits."""
    alone = sampler(1)
    alone.add(replace(new, slot=0))
    step = np.zeros(1, np.int64)
    return [int(alone.sample(logits.clone().view(1, -1), step, np.array([p])).tokens[0]) for p in positions]


@pytest.fixture
def logits() -> Tensor:
    return torch.randn(VOCAB, generator=torch.Generator().manual_seed(5)) * 2


def test_a_seed_gives_the_same_tokens_again(logits: Tensor) -> None:
    request = replace(PLAIN, temperature=1.0, seed=42)
    first = one(request, logits, list(range(4, 24)))
    assert first == one(request, logits, list(range(4, 24)))
    assert first != one(replace(request, seed=43), logits, list(range(4, 24)))
    assert first[10:] == one(request, logits, list(range(14, 24)))


def test_tokens_are_suppressed_until_min_tokens_are_out(logits: Tensor) -> None:
    best = logits.argsort(descending=True)[:3].tolist()
    request = replace(PLAIN, min_tokens=2, suppress=ints(*best[:2]))
    assert one(request, logits, [4, 5, 6, 7]) == [best[2], best[2], best[0], best[0]]


def test_bias(logits: Tensor) -> None:
    best = int(logits.argmax())
    up = replace(PLAIN, bias_ids=ints(9, 0), bias_values=np.array([100.0, 1.0], np.float32))
    down = replace(PLAIN, bias_ids=ints(best), bias_values=np.array([-100.0], np.float32))
    assert one(up, logits, [4]) == [9]
    assert one(down, logits, [4]) == [int(logits.argsort(descending=True)[1])]


def test_penalties_count_what_was_sampled(logits: Tensor) -> None:
    tokens = one(replace(PLAIN, frequency=2.0), logits, list(range(4, 60)))
    counts: dict[int, int] = {}
    for token in tokens:
        scores = logits.clone()
        for seen, count in counts.items():
            scores[seen] -= 2.0 * count
        assert token == int(scores.argmax())
        counts[token] = counts.get(token, 0) + 1
    assert max(counts.values()) > 1


def test_history_continues_a_request(logits: Tensor) -> None:
    """A request that was preempted goes on as if it had not been."""
    prompt = [int(logits.argmax()), 5, 6, 7]
    request = replace(PLAIN, repetition=1.5, presence=0.4, frequency=0.1, history=ints(*prompt))
    whole = one(request, logits, list(range(4, 16)))
    resumed = replace(request, history=ints(*prompt, *whole[:5]))
    assert one(resumed, logits, list(range(9, 16))) == whole[5:]


def test_repetition_penalty_counts_the_prompt_and_presence_does_not(logits: Tensor) -> None:
    best, second = logits.argsort(descending=True)[:2].tolist()
    prompt = ints(best, 1, 2, 3)
    assert one(replace(PLAIN, presence=2.0, history=prompt), logits, [4]) == [best]
    assert one(replace(PLAIN, repetition=50.0, history=prompt), logits, [4]) == [second]


def test_a_slot_forgets_its_last_request(logits: Tensor) -> None:
    keeper = sampler(2)
    slots, position = np.zeros(1, np.int64), np.array([4])
    best = int(logits.argmax())
    keeper.add(
        replace(PLAIN, repetition=50.0, history=ints(best, best, 1, 2), suppress=ints(3), min_tokens=9)
    )
    assert int(keeper.sample(logits.clone().view(1, -1), slots, position).tokens[0]) != best
    keeper.free(slots)
    keeper.add(PLAIN)
    assert int(keeper.sample(logits.clone().view(1, -1), slots, position).tokens[0]) == best


def test_logprobs_are_of_the_raw_logits(logits: Tensor) -> None:
    keeper = sampler(1)
    keeper.add(
        replace(
            PLAIN, temperature=0.1, logprobs=2, bias_ids=ints(9), bias_values=np.array([100.0], np.float32)
        )
    )
    sampled = keeper.sample(logits.clone().view(1, -1), np.zeros(1, np.int64), np.array([4]))
    exact = logits.double().log_softmax(-1)
    assert sampled.tokens.tolist() == [9]
    assert sampled.logprobs is not None
    assert float(sampled.logprobs.logprob[0]) == pytest.approx(float(exact[9]), abs=1e-5)
    assert int(sampled.logprobs.rank[0]) == 1 + int((logits > logits[9]).sum())
    assert sampled.logprobs.top_id[0].tolist() == exact.topk(5).indices.tolist()


def test_rows_that_are_not_finite_are_marked(logits: Tensor) -> None:
    keeper = sampler(4)
    for slot in range(4):
        keeper.add(replace(PLAIN, slot=slot, temperature=float(slot % 2)))
    rows = logits.repeat(4, 1)
    rows[1, 100] = math.nan
    rows[2, 100] = math.inf
    sampled = keeper.sample(rows, np.arange(4), np.full(4, 4))
    assert sampled.finite.tolist() == [True, False, False, True]
    assert int(sampled.tokens.min()) >= 0
    assert int(sampled.tokens.max()) < VOCAB


def all_kinds(count: int) -> list[NewSlot]:
    """Requests of every kind, each with its own mixture."""
    rng = random.Random(3)

    def some(count: int) -> Any:
        return ints(*rng.sample(range(VOCAB), count))

    requests = []
    for slot in range(count):
        prompt_len = rng.randrange(1, 30)
        bias = some(rng.choice([0, 0, 1, 40]))
        requests.append(
            NewSlot(
                slot=slot,
                prompt_len=prompt_len,
                temperature=rng.choice([0.0, 0.3, 1.0, 2.5]),
                top_k=rng.choice([0, 0, 1, 40, 1200]),
                top_p=rng.choice([1.0, 0.2, 0.9, 0.999]),
                min_p=rng.choice([0.0, 0.0, 0.1]),
                presence=rng.choice([0.0, 0.0, 1.0]),
                frequency=rng.choice([0.0, 0.0, -0.5]),
                repetition=rng.choice([1.0, 1.0, 1.3]),
                seed=rng.randrange(-(2**63), 2**63),
                logprobs=rng.choice([-1, -1, 0, 5]),
                min_tokens=rng.choice([0, 0, 2, 50]),
                history=some(prompt_len + 3),
                suppress=some(rng.choice([0, 2])),
                bias_ids=bias,
                bias_values=np.array([rng.uniform(-5, 5) for _ in bias], np.float32),
            )
        )
    return requests


def outcome(sampled: Any, row: int) -> tuple[Any, ...]:
    """Everything that a request gets, bits and all."""
    place = np.flatnonzero(sampled.logprob_rows == row)
    details: tuple[Any, ...] = ()
    if len(place):
        index = int(place[0])
        logprobs = sampled.logprobs
        details = (
            float(logprobs.logprob[index]),
            int(logprobs.rank[index]),
            logprobs.top_id[index].tolist(),
            logprobs.top_logprob[index].tolist(),
        )
    return int(sampled.tokens[row]), bool(sampled.finite[row]), details


def test_a_row_is_the_same_alone_and_among_a_hundred_others() -> None:
    requests = all_kinds(101)
    generator = torch.Generator().manual_seed(9)
    steps = [torch.randn(101, VOCAB, generator=generator) * 3 for _ in range(4)]
    together = sampler()
    for request in requests:
        together.add(request)
    order = list(range(101))
    crowd: list[list[tuple[Any, ...]]] = [[] for _ in requests]
    for number, rows in enumerate(steps):
        random.Random(number).shuffle(order)
        positions = np.array([requests[slot].prompt_len + 3 + number for slot in order])
        sampled = together.sample(rows[order].clone(), np.array(order), positions)
        for row, slot in enumerate(order):
            crowd[slot].append(outcome(sampled, row))
    for slot, request in enumerate(requests):
        alone = sampler(1)
        alone.add(replace(request, slot=0))
        for number, rows in enumerate(steps):
            position = np.array([request.prompt_len + 3 + number])
            sampled = alone.sample(rows[slot : slot + 1].clone(), np.zeros(1, np.int64), position)
            assert outcome(sampled, 0) == crowd[slot][number], (request, number)
