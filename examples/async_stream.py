"""Two streams at once, one of them left early: python examples/async_stream.py [MODEL]."""

import asyncio
import sys
from contextlib import aclosing

from octavo import AsyncEngine, RequestOutputKind, SamplingParams


async def tell(engine: AsyncEngine, prompt: str, max_chunks: int) -> None:
    """Print what comes, chunk by chunk; closing the stream aborts its request."""
    params = SamplingParams(temperature=0, max_tokens=32, output_kind=RequestOutputKind.DELTA)
    chunks = 0
    async with aclosing(engine.generate(prompt, params)) as stream:
        async for output in stream:
            for choice in output.outputs:
                print(f"{prompt}: {choice.text!r}", flush=True)
            chunks += 1
            if chunks == max_chunks:
                break


async def main() -> None:
    """Both streams share the engine's batches."""
    engine = AsyncEngine(sys.argv[1] if len(sys.argv) > 1 else "demo")
    try:
        await asyncio.gather(tell(engine, "Once upon a time", 100), tell(engine, "My name is", 3))
    finally:
        engine.shutdown()


asyncio.run(main())
