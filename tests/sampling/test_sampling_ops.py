"""Sampling ops against arithmetic in plain Python."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from octavo import ops
from octavo.sampling.philox import uniform


@pytest.fixture(params=["torch", "selected"])
def kernels(request: pytest.FixtureRequest) -> ops.Ops:
    return ops.torch_ops if request.param == "torch" else ops.select(torch.device("cpu"))


def kept(logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float) -> dict[int, float]:
    """Token -> probability after the filters; ties with the last one kept are kept."""
    best = max(logits)
    weights = {token: math.exp((logit - best) / temperature) for token, logit in enumerate(logits)}
    weights = {token: weight for token, weight in weights.items() if weight >= min_p}
    if top_k:
        least = sorted(weights.values(), reverse=True)[:top_k][-1]
        weights = {token: weight for token, weight in weights.items() if weight >= least}
    if top_p < 1:
        total, seen, least = sum(weights.values()), 0.0, 0.0
        for weight in sorted(weights.values(), reverse=True):
            seen, least = seen + weight, weight
            if seen >= top_p * total:
                break
        weights = {token: weight for token, weight in weights.items() if weight >= least}
    total = sum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


def draw(kernels: ops.Ops, logits: Tensor, draws: Any, **rule: float) -> Tensor:
    n = len(logits)
    return kernels.draw(
        logits.clone(),
        temperature=torch.full((n,), rule.get("temperature", 1.0)),
        top_k=torch.full((n,), int(rule.get("top_k", 0)), dtype=torch.int32),
        top_p=torch.full((n,), rule.get("top_p", 1.0)),
        min_p=torch.full((n,), rule.get("min_p", 0.0)),
        uniform=torch.as_tensor(draws, dtype=torch.float64),
    )


RULES = [
    {},
    {"temperature": 0.3},
    {"top_k": 1},
    {"top_k": 7},
    {"top_k": 5000},
    {"top_p": 0.1},
    {"top_p": 0.9},
    {"top_p": 0.9999},
    {"min_p": 0.2},
    {"min_p": 1.0},
    {"top_k": 20, "top_p": 0.8, "temperature": 0.7},
    {"top_k": 1500, "top_p": 0.95},
    {"min_p": 0.05, "top_k": 12, "top_p": 0.5, "temperature": 2.0},
]


@pytest.mark.parametrize("vocab", [40, 3000])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_draws_follow_the_filtered_distribution(kernels: ops.Ops, vocab: int, rule: dict[str, float]) -> None:
    """Each draw is the token whose share of the unit interval, in order of ids, holds the uniform number."""
    logits = torch.randn(vocab, generator=torch.Generator().manual_seed(vocab)) * 2
    full = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0} | rule
    shares = kept(logits.tolist(), full["temperature"], int(full["top_k"]), full["top_p"], full["min_p"])
    tokens, edges = list(shares), np.cumsum(list(shares.values()))
    draws = uniform(np.full(400, 3, np.int64), np.arange(400))
    expected = [tokens[min(i, len(tokens) - 1)] for i in np.searchsorted(edges, draws, side="right")]
    actual = draw(kernels, logits.expand(400, -1).contiguous(), draws, **rule).tolist()
    near_edge = [np.abs(edges - u).min() < 1e-5 for u in draws]
    wrong = [i for i in range(400) if actual[i] != expected[i] and not near_edge[i]]
    assert not wrong
    assert set(actual) <= set(tokens)


def test_ties_with_the_last_token_kept_are_kept(kernels: ops.Ops) -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0, 2.0, 2.0, 0.0]]).expand(300, -1).contiguous()
    draws = (np.arange(300) + 0.5) / 300
    assert set(draw(kernels, logits, draws, top_k=2).tolist()) == {1, 2, 3, 4}


def test_extreme_draws_and_impossible_tokens(kernels: ops.Ops) -> None:
    logits = torch.tensor([[-math.inf, 1.0, -math.inf, 0.5, -math.inf]]).expand(2, -1).contiguous()
    assert draw(kernels, logits, [2.0**-33, 1 - 2.0**-33]).tolist() == [1, 3]


def test_greedy_takes_the_lowest_id_on_ties(kernels: ops.Ops) -> None:
    logits = torch.zeros(3, 1000)
    logits[0, [700, 300, 999]] = 5.0
    logits[1, 999] = 1.0
    values, tokens = kernels.greedy(logits)
    assert tokens.tolist() == [300, 999, 0]
    assert values.tolist() == [5.0, 1.0, 0.0]


def test_greedy_shows_logits_that_are_not_finite(kernels: ops.Ops) -> None:
    logits = torch.randn(4, 200)
    logits[1, 150] = math.nan
    logits[2, 3] = math.inf
    values, _ = kernels.greedy(logits)
    assert torch.isfinite(values).tolist() == [True, False, False, True]


def test_penalties(kernels: ops.Ops) -> None:
    logits = torch.tensor([[2.0, -2.0, 1.0, -1.0, 0.5], [2.0, -2.0, 1.0, -1.0, 0.5]])
    result = kernels.penalize(
        logits.clone(),
        in_prompt=torch.tensor([[True, True, False, False, False], [False] * 5]),
        output_count=torch.tensor([[0, 1, 3, 0, 0], [0, 0, 2, 0, 0]], dtype=torch.int32),
        presence=torch.tensor([0.5, 0.0]),
        frequency=torch.tensor([0.25, 1.0]),
        repetition=torch.tensor([2.0, 1.0]),
    )
    expected = [[1.0, -4.75, 0.5 - 1.25, -1.0, 0.5], [2.0, -2.0, -1.0, -1.0, 0.5]]
    assert torch.allclose(result, torch.tensor(expected))


@pytest.mark.parametrize("vocab", [30, 5000])
def test_logprobs(kernels: ops.Ops, vocab: int) -> None:
    logits = torch.randn(6, vocab, generator=torch.Generator().manual_seed(1)) * 3
    logits[0, 7] = logits[0].max() + 1
    logits[0, 3] = logits[0, 7]
    tokens = torch.tensor([7, 0, 1, 2, 3, vocab - 1])
    logprob, rank, ids, values = kernels.token_logprobs(logits, tokens, 5)
    exact = logits.double().log_softmax(-1)
    assert (logprob - exact.gather(-1, tokens.view(-1, 1)).squeeze(-1)).abs().max() < 2e-6
    assert rank.tolist() == [
        1 + int((row > row[token]).sum()) for row, token in zip(exact, tokens, strict=True)
    ]
    assert (values - exact.topk(5).values).abs().max() < 2e-6
    assert ids[0, :2].tolist() == [3, 7]
    assert torch.equal(ids[1:].long(), exact[1:].topk(5).indices)
