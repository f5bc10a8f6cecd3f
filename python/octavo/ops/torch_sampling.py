"""Sampling ops in plain torch: the slow and obvious reference, on any device.

Every result is a function of its own row: sums run in a fixed order, and no choice depends on another row's
parameters.
"""

from __future__ import annotations

import torch
from torch import Tensor

_CANDIDATES = 1024
"""Tokens looked at before a whole row is sorted; fixed, so that rows do not depend on each other's top_k."""


def greedy(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The largest logit of each row and its token, the lowest on ties: [n, vocab] -> float32 [n], int64 [n].

    A NaN counts as largest, so a row is good if and only if its largest logit is finite.
    """
    values, tokens = logits.max(dim=-1)
    return values, tokens


def draw(
    logits: Tensor, *, temperature: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor, uniform: Tensor
) -> Tensor:
    """Draws a token a row: [n, vocab] -> int64 [n].

    `temperature` float32 [n], above 0; `top_k` int32 [n], 0 off; `top_p` float32 [n], 1 off; `min_p` float32
    [n], 0 off; `uniform` float64 [n] in (0, 1). The filters apply in the order min_p, top_k, top_p, each to
    what the one before left; tokens as likely as the last one kept are kept. Then the token is where the
    cumulative probability, in the order of ids, passes `uniform`.
    """
    scaled = logits / temperature.unsqueeze(-1)
    probs = torch.exp(scaled - scaled.amax(-1, keepdim=True))
    limited = ((top_k > 0) | (top_p < 1)).nonzero().squeeze(-1)
    floor = min_p.clone()
    if limited.numel():
        floor[limited] = _floor(probs[limited], top_k[limited], top_p[limited], min_p[limited])
    kept = torch.where(probs >= floor.unsqueeze(-1), probs, 0.0)
    cumulative = kept.cumsum(-1, dtype=torch.float64)
    target = uniform.unsqueeze(-1) * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, target, right=True).squeeze(-1)
    return tokens.clamp_(max=logits.shape[-1] - 1)


def _floor(probs: Tensor, top_k: Tensor, top_p: Tensor, floor: Tensor) -> Tensor:
    """The least probability that the filters keep, from probabilities whose maximum is 1."""
    vocab = probs.shape[-1]
    found, floor = _floor_among(probs, torch.topk(probs, min(_CANDIDATES, vocab)).values, top_k, top_p, floor)
    rest = (~found).nonzero().squeeze(-1)
    if rest.numel():
        rows = probs[rest]
        whole = rows.sort(-1, descending=True).values
        floor[rest] = _floor_among(rows, whole, top_k[rest], top_p[rest], floor[rest])[1]
    return floor


def _floor_among(
    probs: Tensor, best: Tensor, top_k: Tensor, top_p: Tensor, floor: Tensor
) -> tuple[Tensor, Tensor]:
    """Looks for the floor among a row's best probabilities, in falling order. Returns (found, floor)."""
    width, vocab = best.shape[-1], probs.shape[-1]
    rank = torch.where(top_k > 0, top_k, vocab).long().clamp(max=vocab)
    with_k = torch.maximum(floor, best.gather(-1, (rank - 1).clamp(max=width - 1).unsqueeze(-1)).squeeze(-1))
    found = (rank <= width) | (rank == vocab)
    with_k = torch.where(rank == vocab, floor, with_k)
    left = torch.where(probs >= with_k.unsqueeze(-1), probs, 0.0).cumsum(-1, dtype=torch.float64)[:, -1]
    mass = torch.where(best >= with_k.unsqueeze(-1), best, 0.0).cumsum(-1, dtype=torch.float64)
    wanted = top_p * left
    last = (mass < wanted.unsqueeze(-1)).sum(-1)
    uses_p = top_p < 1
    found &= ~uses_p | (last < width) | (width == vocab)
    with_p = best.gather(-1, last.clamp(max=width - 1).unsqueeze(-1)).squeeze(-1)
    with_both = torch.where(uses_p, torch.maximum(with_k, with_p), with_k)
    return found, torch.where(found, with_both, floor)


def penalize(
    logits: Tensor,
    *,
    in_prompt: Tensor,
    output_count: Tensor,
    presence: Tensor,
    frequency: Tensor,
    repetition: Tensor,
) -> Tensor:
    """Logits [n, vocab] after the penalties [n] of tokens that were seen.

    `in_prompt` bool [n, vocab], `output_count` int32 [n, vocab]. Repetition divides positive logits and
    multiplies negative ones, for tokens of prompt and output; the others count output only.
    """
    in_output = output_count > 0
    repetition = repetition.unsqueeze(-1)
    repeated = torch.where(logits > 0, logits / repetition, logits * repetition)
    logits = torch.where(in_prompt | in_output, repeated, logits)
    logits = logits - frequency.unsqueeze(-1) * output_count
    return logits - presence.unsqueeze(-1) * in_output


def token_logprobs(logits: Tensor, tokens: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Log-probabilities of `tokens` int64 [n] under `logits` [n, vocab], and the `k` most likely tokens.

    Returns logprob float32 [n], rank int32 [n] (1 is the most likely), ids int32 [n, k] and their logprobs
    float32 [n, k], best first, lower ids first on ties.
    """
    logprobs = torch.log_softmax(logits, dim=-1, dtype=torch.float32)
    chosen = logprobs.gather(-1, tokens.unsqueeze(-1))
    rank = (logprobs > chosen).sum(-1, dtype=torch.int32) + 1
    values, ids = torch.topk(logprobs, k)
    ids, order = ids.sort(-1)
    values, by_value = values.gather(-1, order).sort(dim=-1, descending=True, stable=True)
    return chosen.squeeze(-1), rank, ids.gather(-1, by_value).int(), values
