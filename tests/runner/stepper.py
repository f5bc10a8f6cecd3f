"""Drives a runner by frames written by hand: the smallest thing that can stand in the scheduler's place."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from octavo import _core
from octavo.executor.frame import MAGIC, PROMPT_LOGPROBS, SAMPLE, VERSION, Frame, StepResult
from octavo.executor.runner import Runner, RunnerConfig

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass
class Request:
    """A request and what came back for it."""

    prompt: list[int]
    max_tokens: int = 8
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence: float = 0.0
    frequency: float = 0.0
    repetition: float = 1.0
    seed: int = 0
    logprobs: int = -1
    prompt_logprobs: int = -1
    min_tokens: int = 0
    suppress: list[int] = field(default_factory=list)
    bias: dict[int, float] = field(default_factory=dict)
    forced: list[int] | None = None
    """Tokens fed back instead of those sampled."""

    sampled: list[int] = field(default_factory=list)
    status: list[int] = field(default_factory=list)
    token_logprobs: list[float] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    top: list[list[tuple[int, float]]] = field(default_factory=list)
    prompt_result: dict[int, tuple[float, int, list[tuple[int, float]]]] = field(default_factory=dict)
    resent: int = 0
    """Output tokens that left the device, because the request was preempted after them."""
    computed: int = 0
    slot: int = -1
    blocks: list[int] = field(default_factory=list)

    @property
    def needs_history(self) -> bool:
        return bool(self.presence or self.frequency or self.repetition != 1.0)

    def token(self, index: int) -> int:
        """The token at `index` of the sequence, -1 if it is on the device only."""
        if index < len(self.prompt):
            return self.prompt[index]
        at = index - len(self.prompt)
        if self.forced is not None:
            return self.forced[at]
        return self.sampled[at] if at < self.resent else -1


class Stepper:
    """Owns a runner, frames and blocks in random order."""

    def __init__(self, config: RunnerConfig, *, chunk: int | None = None, shuffle_seed: int = 0) -> None:
        self.config = config
        self.runner = Runner(config)
        self.progress: list[str] = []
        self.facts = self.runner.load(self.progress.append)
        self.chunk = chunk or config.max_num_batched_tokens
        layout = _core.frame_layout(limits_of(config, self.facts))
        self.frame = Frame(memoryview(bytearray(layout["frame_bytes"])), layout["frame"])
        self.result = StepResult(memoryview(bytearray(layout["result_bytes"])), layout["result"])
        self._random = random.Random(shuffle_seed)
        self._free_blocks = list(range(self.facts.num_blocks))
        self._random.shuffle(self._free_blocks)
        self._free_slots = list(range(config.max_num_seqs))
        self._random.shuffle(self._free_slots)
        self._freed: list[int] = []
        self._number = 0

    def run(self, requests: Iterable[Request], join_every: int = 0) -> None:
        """Computes all requests; with `join_every` one more joins each so many steps."""
        waiting, running = list(requests), []
        while waiting or running:
            if join_every == 0:
                running, waiting = running + waiting, []
            elif (waiting and self._number % join_every == 0) or not running:
                running.append(waiting.pop(0))
            self.step(running)
            running = [request for request in running if not self.finish(request)]

    def step(self, requests: list[Request]) -> None:
        """Computes one step: all decodes, then prompt chunks while tokens last."""
        frame, header = self.frame, [MAGIC, VERSION, self._number, 0, 0, 0, len(self._freed), 0, 0]
        frame.freed_slot[: len(self._freed)] = _ints(self._freed)
        self._freed = []
        budget = min(self.config.max_num_batched_tokens, 10**9)
        planned: list[tuple[Request, int]] = []
        for request in requests[: self.config.max_num_seqs]:
            left = max(len(request.prompt) + len(request.sampled) - request.computed, 1)
            take = min(left, self.chunk, budget)
            if take > 0:
                planned.append((request, take))
                budget -= take
        planned.sort(key=lambda item: item[1] != 1)
        heap: list[int] = []
        deltas: list[tuple[int, int, int]] = []
        tokens: list[int] = []
        new: list[Request] = []
        for row, (request, take) in enumerate(planned):
            if request.slot < 0:
                request.slot = self._free_slots.pop()
                new.append(request)
            end = request.computed + take
            while len(request.blocks) * self.config.block_size < end:
                block = self._free_blocks.pop()
                deltas.append((request.slot, len(request.blocks), block))
                request.blocks.append(block)
            frame.row_slot[row] = request.slot
            frame.row_query_start[row] = len(tokens)
            frame.row_computed[row] = request.computed
            known = len(request.prompt) + len(request.sampled)
            flags = SAMPLE if end == known else 0
            frame.row_next_token[row] = -1
            if request.prompt_logprobs >= 0 and request.computed < len(request.prompt):
                flags |= PROMPT_LOGPROBS
                if end < len(request.prompt):
                    frame.row_next_token[row] = request.prompt[end]
            frame.row_flags[row] = flags
            tokens += [request.token(index) for index in range(request.computed, end)]
        frame.row_query_start[len(planned)] = len(tokens)
        frame.tokens[: len(tokens)] = _ints(tokens)
        for index, request in enumerate(new):
            self._write_new(index, request, heap)
        frame.heap[: len(heap)] = _ints(heap)
        for column, values in zip(
            (frame.delta_slot, frame.delta_index, frame.delta_block), zip(*deltas, strict=True), strict=False
        ):
            column[: len(deltas)] = _ints(values)
        header[3:6], header[7:9] = [len(planned), len(tokens), len(new)], [len(deltas), len(heap)]
        frame.header[:9] = _ints(header)
        self.runner.execute(frame, self.result)
        self._read(planned)
        self._number += 1

    def _write_new(self, index: int, request: Request, heap: list[int]) -> None:
        frame = self.frame
        known = request.prompt + request.sampled
        parts: list[list[int]] = [
            known if request.needs_history else [],
            request.suppress,
            [*request.bias, *np.array(list(request.bias.values()), np.float32).view(np.int32).tolist()],
        ]
        words = [
            len(request.prompt),
            request.top_k,
            request.logprobs,
            request.prompt_logprobs,
            request.min_tokens,
        ]
        for part, words_each in zip(parts, (1, 1, 2), strict=True):
            words += [len(heap), len(part) // words_each]
            heap += part
        frame.new_slot[index] = request.slot
        frame.new_int[index] = _ints([*words, 0])
        floats = (request.temperature, request.top_p, request.min_p)
        floats += (request.presence, request.frequency, request.repetition)
        for column, value in enumerate(floats):
            frame.new_float[index, column] = value
        frame.new_seed[index] = request.seed

    def _read(self, planned: list[tuple[Request, int]]) -> None:
        result, start = self.result, 0
        assert result.header[:4].tolist() == [MAGIC, VERSION, self._number, len(planned)]
        for row, (request, take) in enumerate(planned):
            flags = int(self.frame.row_flags[row])
            if flags & PROMPT_LOGPROBS:
                for offset in range(take):
                    position, column = request.computed + offset + 1, start + offset
                    if position < len(request.prompt):
                        request.prompt_result[position] = (
                            float(result.prompt_logprob[column]),
                            int(result.prompt_rank[column]),
                            _pairs(result.prompt_top_id[column], result.prompt_top_logprob[column]),
                        )
            request.computed += take
            start += take
            token = int(result.token[row])
            assert (token >= 0) == bool(flags & SAMPLE)
            if flags & SAMPLE:
                request.sampled.append(token)
                request.status.append(int(result.status[row]))
                if request.logprobs >= 0:
                    request.token_logprobs.append(float(result.logprob[row]))
                    request.ranks.append(int(result.rank[row]))
                    request.top.append(_pairs(result.top_id[row], result.top_logprob[row]))

    def finish(self, request: Request) -> bool:
        """Lets go of a request that has all its tokens; says whether it has."""
        if len(request.sampled) < request.max_tokens:
            return False
        self._release(request)
        return True

    def preempt(self, request: Request) -> None:
        """Takes a request's slot and blocks; it is computed again from its tokens."""
        self._release(request)
        request.resent = len(request.sampled)

    def _release(self, request: Request) -> None:
        if request.slot >= 0:
            self._freed.append(request.slot)
            self._free_slots.append(request.slot)
        self._free_blocks += request.blocks
        self._random.shuffle(self._free_blocks)
        request.blocks, request.slot, request.computed = [], -1, 0


def limits_of(config: RunnerConfig, facts: Any) -> Any:
    """The core's limits for a runner."""
    return {
        "block_size": facts.block_size,
        "num_blocks": facts.num_blocks,
        "groups": facts.groups,
        "max_model_len": facts.max_model_len,
        "max_num_seqs": config.max_num_seqs,
        "max_num_batched_tokens": config.max_num_batched_tokens,
        "long_prefill_token_threshold": 0,
        "max_num_queued_reqs": 1 << 20,
        "max_logprobs": config.max_logprobs,
        "vocab_size": facts.vocab_size,
        "watermark": 0.0,
        "enable_prefix_caching": False,
        "max_pinned_share": 0.5,
        "host_blocks": 0,
        "host_load_tokens": 0.0,
        "disk_tier": False,
        "tenant_weights": [],
        "policy": "fcfs",
        "pipeline_depth": 1,
    }


def _ints(values: Any) -> Any:
    return torch.tensor(list(values), dtype=torch.int32)


def _pairs(ids: Any, logprobs: Any) -> list[tuple[int, float]]:
    return list(zip(ids.tolist(), logprobs.tolist(), strict=True))
