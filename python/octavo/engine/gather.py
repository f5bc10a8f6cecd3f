"""From updates to outputs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from octavo.engine.outputs import CompletionOutput, Logprob, RequestOutput
from octavo.engine.sampling_params import RequestOutputKind, SamplingParams

if TYPE_CHECKING:
    from octavo._core import Update
    from octavo.boundary import Alternative


class Gathered:
    """What has come of one request."""

    def __init__(self, request_id: str, prompt: str | None, params: SamplingParams) -> None:
        self._params = params
        with_logprobs = params.logprobs is not None
        self.output = RequestOutput(
            request_id=request_id,
            prompt=prompt,
            prompt_token_ids=[],
            outputs=[
                CompletionOutput(
                    index=index,
                    cumulative_logprob=0.0 if with_logprobs else None,
                    logprobs=[] if with_logprobs else None,
                )
                for index in range(params.n)
            ],
        )

    def add(self, update: Update) -> RequestOutput | None:
        """Take an update in; returns what a stream should show for it, if anything.

        Raises what the request failed with.
        """
        update.raise_failure()
        output = self.output
        if update.prompt_token_ids is not None:
            output.prompt_token_ids = update.prompt_token_ids
            output.prompt = output.prompt if update.prompt is None else update.prompt
            return None
        if update.last:
            output.finished = True
            output.num_cached_tokens = update.cached_tokens
            if self._params.prompt_logprobs is not None:
                output.prompt_logprobs = [None, *map(_position, update.prompt_logprobs)]
            return self._shown([])
        delta = self._append(output.outputs[update.index], update)
        return None if self._params.output_kind is RequestOutputKind.FINAL_ONLY else self._shown([delta])

    def abort(self) -> RequestOutput:
        """The last output of a stream that was aborted: choices that had not ended end so."""
        self.output.finished = True
        for choice in self.output.outputs:
            choice.finish_reason = choice.finish_reason or "abort"
        ended = [replace(choice, text="", token_ids=[], logprobs=None) for choice in self.output.outputs]
        return self._shown(ended)

    def _append(self, choice: CompletionOutput, update: Update) -> CompletionOutput:
        logprobs = [_position(position) for position in update.logprobs]
        choice.text += update.text
        choice.token_ids.extend(update.token_ids)
        if choice.logprobs is not None and choice.cumulative_logprob is not None:
            choice.logprobs.extend(logprobs)
            choice.cumulative_logprob += sum(position[0][1] for position in update.logprobs)
        choice.finish_reason = update.finish_reason
        choice.stop_reason = update.stop_reason
        return replace(
            choice,
            text=update.text,
            token_ids=update.token_ids,
            logprobs=None if choice.logprobs is None else logprobs,
        )

    def _shown(self, deltas: list[CompletionOutput]) -> RequestOutput:
        """A copy that later updates do not change."""
        if self._params.output_kind is RequestOutputKind.DELTA:
            return replace(self.output, outputs=deltas)
        copies = [
            replace(
                choice,
                token_ids=choice.token_ids.copy(),
                logprobs=None if choice.logprobs is None else choice.logprobs.copy(),
            )
            for choice in self.output.outputs
        ]
        return replace(self.output, outputs=copies)


def _position(alternatives: list[Alternative]) -> dict[int, Logprob]:
    return {token: Logprob(logprob, rank, text) for token, logprob, rank, text in alternatives}
