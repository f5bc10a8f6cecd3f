"""A step whose result is still on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from octavo.executor.frame import MAGIC, VERSION

if TYPE_CHECKING:
    from octavo.executor.frame import StepResult
    from octavo.executor.host_tier import CopyTimes
    from octavo.executor.rows import Step
    from octavo.sampling import Logprobs, Sampled


@dataclass(frozen=True, slots=True)
class Pending:
    """What a step computed. `write` waits for the device."""

    number: int
    step: Step | None
    """None for a frame without rows."""
    sampled: Sampled | None
    prompt: list[Logprobs]
    """Of the step's `prompt_tokens`, in parts."""
    copies: CopyTimes

    def write(self, result: StepResult) -> None:
        """Fills the columns of a result; those of rows that asked for nothing keep what they had."""
        rows = self.step.rows if self.step is not None else 0
        header = (MAGIC, VERSION, self.number, rows, *self.copies)
        result.header[: len(header)] = torch.tensor(header, dtype=torch.int32)
        if self.step is None:
            return
        result.token[:rows] = -1
        result.status[:rows] = 0
        if self.sampled is not None:
            self._write_sampled(self.step, self.sampled, result)
        if self.prompt:
            self._write_prompt(self.step, result)

    def _write_sampled(self, step: Step, sampled: Sampled, result: StepResult) -> None:
        both = torch.stack((sampled.tokens.int(), (~sampled.finite).int())).cpu()
        index = torch.from_numpy(step.sample_rows)
        result.token[index], result.status[index] = both[0], both[1]
        if sampled.logprobs is None:
            return
        index = index[torch.from_numpy(sampled.logprob_rows)]
        logprobs = sampled.logprobs
        result.logprob[index], result.rank[index] = logprobs.logprob.cpu(), logprobs.rank.cpu()
        result.top_id[index, : logprobs.top_id.shape[1]] = logprobs.top_id.cpu()
        result.top_logprob[index, : logprobs.top_id.shape[1]] = logprobs.top_logprob.cpu()

    def _write_prompt(self, step: Step, result: StepResult) -> None:
        start = 0
        for part in self.prompt:
            index = torch.from_numpy(step.prompt_tokens[start : start + len(part.logprob)])
            start += len(index)
            result.prompt_logprob[index], result.prompt_rank[index] = part.logprob.cpu(), part.rank.cpu()
            result.prompt_top_id[index, : part.top_id.shape[1]] = part.top_id.cpu()
            result.prompt_top_logprob[index, : part.top_id.shape[1]] = part.top_logprob.cpu()
