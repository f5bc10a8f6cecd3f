"""`AsyncEngine`: streams for servers of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.engine.engine import Engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from octavo.engine.outputs import RequestOutput
    from octavo.engine.prompts import Messages, Prompt
    from octavo.engine.sampling_params import SamplingParams


class AsyncEngine:
    """An engine whose `generate` is an asynchronous stream. Options as for `Engine`."""

    def __init__(self, model: str = "demo", **options: object) -> None:
        self._engine = Engine(model, **options)

    async def generate(
        self,
        prompt: Prompt | Messages,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        priority: int = 0,
    ) -> AsyncIterator[RequestOutput]:
        """Outputs of one prompt as they come. Leaving the iteration aborts it."""
        async for output in self._engine.stream(
            prompt, sampling_params, request_id=request_id, priority=priority
        ):
            yield output

    def shutdown(self) -> None:
        """Abort what runs and free the model."""
        self._engine.close()
