"""Clients that go away in the middle leave nothing behind."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serving import Server

CLIENTS = 100


async def stream_and_leave(server: Server, seed: int) -> None:
    """Streams a completion and closes the socket after a random number of bytes."""
    rng = random.Random(seed)
    body = (
        f'{{"model": "demo", "prompt": "Story {seed % 7}: once upon a time", "max_tokens": 200, '
        f'"ignore_eos": true, "stream": {rng.choice(["true", "true", "false"])}}}'
    )
    reader, writer = await asyncio.open_connection(server.host, server.port)
    writer.write(
        f"POST /v1/completions HTTP/1.1\r\nHost: {server.host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    await writer.drain()
    wanted = rng.randrange(4000)
    try:
        async with asyncio.timeout(rng.uniform(0.1, 3.0)):
            await reader.readexactly(wanted)
    except (TimeoutError, asyncio.IncompleteReadError):
        pass
    writer.close()


async def test_no_block_stays_leased(server: Server) -> None:
    await asyncio.gather(*(stream_and_leave(server, seed) for seed in range(CLIENTS)))
    await server.until(
        lambda metrics: (
            metrics["vllm:num_requests_running"] == 0
            and metrics["vllm:num_requests_waiting"] == 0
            and metrics["vllm:kv_cache_usage_perc"] == 0
        )
    )
    answer = server.post(
        "/v1/completions", {"prompt": "The capital of France is", "max_tokens": 3, "temperature": 0}
    )
    assert answer["choices"][0]["text"] == " Paris.\n"
