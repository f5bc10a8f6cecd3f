"""Clients that go away in the middle leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from served import completion, wait_until

if TYPE_CHECKING:
    from served import Served

CLIENTS = 100
EMPTY = {"vllm:num_requests_running": 0, "vllm:num_requests_waiting": 0, "vllm:kv_cache_usage_perc": 0}


async def stream_and_leave(url: str, seed: int) -> None:
    """Ask for a completion and close the socket after a random number of bytes."""
    rng = random.Random(seed)
    body = (
        f'{{"model": "demo", "prompt": "Story {seed % 7}: once upon a time", "max_tokens": 200, '
        f'"ignore_eos": true, "stream": {rng.choice(["true", "true", "false"])}}}'
    )
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(
        f"POST /v1/completions HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    await writer.drain()
    wanted = rng.randrange(4000)
    with contextlib.suppress(TimeoutError, asyncio.IncompleteReadError):
        async with asyncio.timeout(rng.uniform(0.1, 3.0)):
            await reader.readexactly(wanted)
    writer.close()


async def test_no_block_stays_leased(demo_server: Served) -> None:
    url = demo_server.url
    await asyncio.gather(*(stream_and_leave(url, seed) for seed in range(CLIENTS)))
    wait_until(lambda: EMPTY.items() <= demo_server.metrics().items())
    text, _ = completion(demo_server.api(), "The capital of France is", 3, lambda count: None)
    assert text == " Paris.\n"
