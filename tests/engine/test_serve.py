"""The server as a process: how it ends, and what it survives."""

from __future__ import annotations

import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from served import Served, completion, wait_until

from octavo.cli.api import ApiError

if TYPE_CHECKING:
    from octavo.cli.api import Api

LONG = 300


def ignore(_: int) -> None:
    """Chunks need no attention."""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_the_server(tiny_options: dict[str, Any], number: signal.Signals) -> None:
    with Served(tiny_options) as server:
        api = server.api()
        worker = server.worker()

        def end(count: int) -> None:
            if count == 1:
                server.process.send_signal(number)

        _, reason = completion(api, "Once upon a time", LONG, end)
        assert reason == "length", "the stream that ran went on to its end"
        assert server.end() == 0
        assert not any("Traceback" in line for line in server.lines)
        wait_until(lambda: not os.path.exists(f"/proc/{worker}"))


def test_a_second_signal_stops_at_once(tiny_options: dict[str, Any]) -> None:
    with Served(tiny_options, **{"shutdown-timeout": 600}) as server:
        api = server.api()

        def end(count: int) -> None:
            if count == 1:
                server.process.send_signal(signal.SIGTERM)
                wait_until(lambda: any("shutting down" in line for line in server.lines))
                server.process.send_signal(signal.SIGTERM)

        with ThreadPoolExecutor() as pool:
            others = [pool.submit(completion, api, f"Story {i}:", LONG, ignore) for i in range(20)]
            try:
                _, reason = completion(api, "Once upon a time", LONG, end)
            except ApiError:
                reason = "abort"
            assert reason == "abort"
            assert server.end() == 0
            for other in others:
                assert isinstance(other.exception(), ApiError) or other.result()[1] in ("abort", "length")


def test_a_port_in_use_is_one_line(tiny_options: dict[str, Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Served(tiny_options, port=port) as server:
            assert server.end() == 1
    (line,) = server.lines
    assert line.startswith(f"octavo: port {port} on 127.0.0.1 is in use; ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "/no/such/folder"}, "/no/such/folder does not exist"),
        ({"tokenizer": "/no/such/folder"}, "/no/such/folder does not exist"),
        ({"chat-template": "/no/such/file"}, "/no/such/file"),
        ({"hf-overrides": '{"num_key_value_heads": 3}'}, "num_key_value_heads"),
        ({"kv-cache-memory-bytes": 1}, "KV memory"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(
    tiny_options: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    with Served(tiny_options, **change) as server:
        assert server.end() == 1
    assert message in server.lines[-1]
    assert not any("Traceback" in line for line in server.lines)


def test_streams_go_on_with_the_same_tokens_when_the_worker_is_killed(tiny_options: dict[str, Any]) -> None:
    prompts = [f"Story number {index}:" for index in range(8)]

    def run(api: Api, on_chunk: Any) -> list[tuple[str, str]]:
        with ThreadPoolExecutor(len(prompts)) as pool:
            return list(pool.map(lambda prompt: completion(api, prompt, LONG, on_chunk), prompts))

    with Served(tiny_options) as server:
        api = server.api()
        undisturbed = run(api, ignore)
        worker = server.worker()
        once = threading.Lock()

        def kill(count: int) -> None:
            if count == 30 and once.acquire(blocking=False):
                os.kill(worker, signal.SIGKILL)

        assert run(api, kill) == undisturbed
        assert server.worker() != worker
        assert any("was ended by SIGKILL" in line and "requests go on" in line for line in server.lines)
        server.process.terminate()
        assert server.end() == 0


def test_a_worker_that_keeps_dying_ends_the_server(tiny_options: dict[str, Any]) -> None:
    with Served(tiny_options) as server:
        server.api()
        worker = None
        for _ in range(3):
            worker = server.worker(but=worker)
            os.kill(worker, signal.SIGKILL)
        assert server.end() == 1
        (line,) = [line for line in server.lines if "the engine has failed" in line]
        assert "the worker has died 3 times" in line
        assert not any("Traceback" in line for line in server.lines)


def test_a_signal_while_the_worker_restarts_ends_cleanly(tiny_options: dict[str, Any]) -> None:
    with Served(tiny_options) as server:
        server.api()
        os.kill(server.worker(), signal.SIGKILL)
        wait_until(lambda: any("starting it again" in line for line in server.lines))
        server.process.terminate()
        assert server.end() == 0
        assert not any("failed" in line for line in server.lines), "\n".join(server.lines)


def test_the_server_does_not_load_torch(tiny_options: dict[str, Any]) -> None:
    with Served(tiny_options) as server:
        server.api()
        with open(f"/proc/{server.process.pid}/maps") as maps:
            assert "libtorch" not in maps.read()
