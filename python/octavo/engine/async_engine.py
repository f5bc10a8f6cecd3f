"""`AsyncEngine`: streams for servers of one's own."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from octavo.engine.engine import Engine

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from octavo.engine.outputs import RequestOutput
    from octavo.engine.prompts import Messages, Prompt
    from octavo.engine.sampling_params import SamplingParams
    from octavo.engine.tokenizer import Tokenizer


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
    ) -> AsyncGenerator[RequestOutput]:
        """Outputs of one prompt as they come. Closing the generator aborts it."""
        stream = self._engine.stream(prompt, sampling_params, request_id=request_id, priority=priority)
        async with aclosing(stream) as outputs:
            async for output in outputs:
                yield output

    async def abort(self, request_id: str | Iterable[str]) -> None:
        """End requests: each gives a last output whose choices have finish_reason "abort"."""
        for one in [request_id] if isinstance(request_id, str) else request_id:
            self._engine.abort(one)

    async def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._engine.get_tokenizer()

    async def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes; False when some are in use and stay."""
        return self._engine.reset_prefix_cache()

    def shutdown(self) -> None:
        """Abort what runs and free the model."""
        self._engine.close()
