"""The worker is killed again and again under load, and no stream shows it."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from served import Served, wait_until

if TYPE_CHECKING:
    from octavo.cli.api import Api

KILLS = 20
COMMON = {"max_tokens": 120, "ignore_eos": True}
SHARED = list(range(1000, 1200))
CALLS: list[dict[str, Any]] = [
    {"prompt": "Once upon a time", "temperature": 0},
    {"prompt": "The quick brown fox", "temperature": 1, "seed": 7, "top_p": 0.9},
    {
        "prompt": "A list of",
        "temperature": 0.8,
        "seed": 3,
        "frequency_penalty": 0.5,
        "repetition_penalty": 1.1,
    },
    {"prompt": [*SHARED, 5, 6, 7], "temperature": 0, "logprobs": 2},
    {"prompt": [*SHARED, *range(300, 500)], "temperature": 1, "seed": 1, "top_k": 40},
    {"prompt": [*SHARED, 8], "temperature": 0, "min_tokens": 20, "stop_token_ids": [11], "ignore_eos": False},
]


def answer(api: Api, call: dict[str, Any], on_chunk: Any = lambda: None) -> list[Any]:
    """All that a stream says."""
    said: list[Any] = []
    text = ""
    for chunk in api.stream("/completions", {"model": api.models()[0], **COMMON, **call}):
        for choice in chunk["choices"]:
            text += choice["text"]
            if choice.get("logprobs"):
                said += [choice["logprobs"]["tokens"], choice["logprobs"]["token_logprobs"]]
            if choice["finish_reason"]:
                said.append(choice["finish_reason"])
        on_chunk()
    return [text, *flat(said)]


def flat(said: list[Any]) -> list[Any]:
    """How tokens are gathered into chunks is a matter of time."""
    lists = [item for item in said if isinstance(item, list)]
    return [value for item in lists for value in item] + [item for item in said if not isinstance(item, list)]


def test_twenty_kills_change_no_stream(tiny_options: dict[str, Any]) -> None:
    with Served(tiny_options, **{"max-worker-deaths": 10 * KILLS}) as server:
        api = server.api()
        undisturbed = [sorted(map(repr, answer(api, call))) for call in CALLS]
        chunks = 0
        count = threading.Lock()
        over = threading.Event()
        streams = 0

        def on_chunk() -> None:
            nonlocal chunks
            with count:
                chunks += 1

        def stream_on(which: int) -> None:
            nonlocal streams
            while not over.is_set():
                assert sorted(map(repr, answer(api, CALLS[which], on_chunk))) == undisturbed[which]
                with count:
                    streams += 1

        def kill() -> None:
            worker = 0
            for number in range(KILLS):
                worker = server.worker(but=worker)
                # Every fourth dies while it loads, the others after some more chunks.
                seen, more = chunks, 0 if number % 4 == 3 else 1 + 13 * number % 60
                wait_until(lambda: chunks >= seen + more)  # noqa: B023  (waits here)
                os.kill(worker, signal.SIGKILL)

        with ThreadPoolExecutor(len(CALLS)) as pool:
            running = [pool.submit(stream_on, which) for which in range(len(CALLS))]
            try:
                kill()
            finally:
                over.set()
            for stream in running:
                stream.result()
        assert streams >= len(CALLS)
        ended = [line for line in server.lines if "was ended by SIGKILL" in line]
        assert len(ended) == KILLS
        assert server.metrics()["vllm:num_requests_running"] == 0
