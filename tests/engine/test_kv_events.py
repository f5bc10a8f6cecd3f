"""A router that reads the server's KV events knows what its prefix cache holds."""

from __future__ import annotations

import json
import os
import signal
import socket
import urllib.request
from typing import TYPE_CHECKING, Any

import msgpack
import pytest
import zmq
from served import Served

from octavo import LLM, SamplingParams

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = "kv@here"
BLOCK = 16
WAIT_MS = 60_000


class Router:
    """A subscriber that keeps, for each block, what it needs to look up prompts."""

    def __init__(self, endpoint: str, topic: str = TOPIC) -> None:
        self.socket = zmq.Context.instance().socket(zmq.SUB)
        self.socket.subscribe(topic)
        self.socket.connect(endpoint)
        self.topic = topic
        self.next = 0
        # Parent and tokens to the block.
        self.blocks: dict[tuple[bytes | None, tuple[int, ...]], bytes] = {}
        self.events: list[Any] = []

    def close(self) -> None:
        self.socket.close(linger=0)

    def read(self) -> None:
        """Take in the next batch."""
        assert self.socket.poll(WAIT_MS), "no batch has come"
        topic, number, payload = self.socket.recv_multipart()
        assert topic == self.topic.encode()
        assert int.from_bytes(number, "big") == self.next
        self.next += 1
        self.apply(payload)

    def apply(self, payload: bytes) -> None:
        time_s, events, rank = msgpack.unpackb(payload)
        assert time_s > 1e9
        assert rank == 0
        self.events += events
        for event in events:
            if event["type"] == "BlockStored":
                self.store(event)
            elif event["type"] == "BlockRemoved":
                gone = event["block_hashes"]
                known = len(self.blocks)
                self.blocks = {key: block for key, block in self.blocks.items() if block not in gone}
                assert len(self.blocks) == known - len(gone)
            else:
                assert event == {"type": "AllBlocksCleared"}
                self.blocks.clear()

    def store(self, event: dict[str, Any]) -> None:
        assert (event["block_size"], event["medium"], event["lora_id"]) == (BLOCK, "GPU", None)
        assert len(event["token_ids"]) == BLOCK * len(event["block_hashes"])
        parent = event["parent_block_hash"]
        assert parent is None or parent in self.blocks.values()
        for place, block in enumerate(event["block_hashes"]):
            tokens = tuple(event["token_ids"][BLOCK * place : BLOCK * (place + 1)])
            assert len(block) == 32
            self.blocks[parent, tokens] = block
            parent = block

    def cached_tokens(self, prompt: list[int]) -> int:
        """How much of a prompt the server has."""
        parent, found = None, 0
        for start in range(0, len(prompt) - BLOCK, BLOCK):
            parent = self.blocks.get((parent, tuple(prompt[start : start + BLOCK])))
            if parent is None:
                break
            found += BLOCK
        return found

    def follow(self, count: int) -> None:
        """Read until `count` blocks are known."""
        while len(self.blocks) != count:
            self.read()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture(scope="module")
def server(tiny_options: dict[str, Any]) -> Iterator[Served]:
    config = {
        "enable_kv_cache_events": True,
        "endpoint": "tcp://127.0.0.1:0",
        "replay_endpoint": "tcp://127.0.0.1:0",
        "topic": TOPIC,
        "buffer_steps": 1000,
    }
    flags = {name.replace("_", "-"): value for name, value in tiny_options.items()}
    more = {"kv-events-config": json.dumps(config), "num-gpu-blocks-override": 70}
    with Served(flags, **more) as started:
        yield started


def call(server: Served, path: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        server.url.removesuffix("/v1") + path, data, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def source(server: Served) -> dict[str, Any]:
    (found,) = call(server, "/kv_event_sources")
    assert (found["data_parallel_rank"], found["topic"]) == (0, TOPIC)
    return found


@pytest.fixture
def router(server: Served) -> Iterator[Router]:
    """A router that has read all there was and sees an empty cache."""
    made = Router(source(server)["endpoint"])
    # A subscription takes a moment; a reset tells a batch each time.
    while not made.socket.poll(50):
        reset(server)
    made.next = int.from_bytes(made.socket.recv_multipart()[1], "big") + 1
    while made.socket.poll(200):
        made.read()
    made.events.clear()
    yield made
    made.close()


def reset(server: Served) -> None:
    call(server, "/reset_prefix_cache", {})


def complete(server: Served, prompt: list[int], **more: Any) -> int:
    """Tokens of a prompt that came from the cache."""
    body = {"prompt": prompt, "max_tokens": 1, "temperature": 0, **more}
    return call(server, "/v1/completions", body)["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_a_router_predicts_what_is_cached(server: Served, router: Router) -> None:
    prompts = [list(range(5, 5 + 16 * (4 + seed % 3 * 12) + 5)) + [seed % 4] * 170 for seed in range(14)]
    found = []
    for prompt in prompts:
        expected = router.cached_tokens(prompt)
        found.append(expected)
        assert complete(server, prompt) == expected
        new = len(prompt) // BLOCK - expected // BLOCK
        stored = sum(len(event.get("token_ids", [])) for event in router.events) // BLOCK
        while sum(len(e.get("token_ids", [])) for e in router.events) // BLOCK < stored + new:
            router.read()
    assert len(set(found)) > 3, found
    assert any(event["type"] == "BlockRemoved" for event in router.events)
    assert len(router.blocks) <= 70


def test_a_reset_clears_all_and_salted_blocks_are_told_apart(server: Served, router: Router) -> None:
    prompt = list(range(100, 148))
    complete(server, prompt)
    router.follow(3)
    plain = [event.pop("extra_keys") for event in router.events]
    assert plain == [[None] * 3]
    reset(server)
    router.follow(0)
    router.events.clear()
    complete(server, prompt, cache_salt="mine")
    router.follow(3)
    (event,) = router.events
    assert event["extra_keys"][0] != [None]
    assert event["extra_keys"][1:] == [None, None]


def test_missed_batches_are_sent_again(server: Served, router: Router) -> None:
    missed = router.next
    for start in (200, 300, 400):
        complete(server, list(range(start, start + 48)))
    router.follow(9)
    late = Router(source(server)["endpoint"])
    late.next = missed
    dealer = zmq.Context.instance().socket(zmq.DEALER)
    dealer.connect(source(server)["replay_endpoint"])
    dealer.send_multipart([b"", missed.to_bytes(8, "big")])
    while True:
        assert dealer.poll(WAIT_MS)
        empty, number, payload = dealer.recv_multipart()
        assert empty == b""
        if int.from_bytes(number, "big", signed=True) == -1:
            assert payload == b""
            break
        assert int.from_bytes(number, "big") == late.next
        late.next += 1
        late.apply(payload)
    assert (late.next, late.blocks) == (router.next, router.blocks)
    dealer.close(linger=0)
    late.close()


def test_a_dead_worker_takes_its_blocks_along(server: Served, router: Router) -> None:
    complete(server, list(range(500, 548)))
    router.follow(3)
    before = server.worker()
    os.kill(before, signal.SIGKILL)
    server.worker(but=before)
    assert complete(server, list(range(500, 548))) == 0
    router.follow(0)
    router.follow(3)


def test_offline_engines_publish_too_and_old_routers_get_arrays(tiny_options: dict[str, Any]) -> None:
    port = free_port()
    config = {"enable_kv_cache_events": True, "endpoint": f"tcp://127.0.0.1:{port}", "event_format": "array"}
    with LLM(**tiny_options, kv_events_config=config) as llm:
        router = Router(f"tcp://127.0.0.1:{port}", "")
        while not router.socket.poll(50):
            llm.reset_prefix_cache()
        router.socket.recv_multipart()
        while router.socket.poll(200):
            router.socket.recv_multipart()
        greedy = SamplingParams(temperature=0, max_tokens=1)
        llm.generate({"prompt_token_ids": list(range(100, 132))}, greedy, use_tqdm=False)
        assert router.socket.poll(WAIT_MS)
        _, (event,), _ = msgpack.unpackb(router.socket.recv_multipart()[2])
        kind, hashes, parent, tokens, size, lora_id, medium = event[:7]
        assert (kind, len(hashes), parent, tokens) == ("BlockStored", 2, None, list(range(100, 132)))
        assert (size, lora_id, medium) == (BLOCK, None, "GPU")
        router.close()
        with pytest.raises(Exception, match=f"endpoint tcp://127.0.0.1:{port}: .*in use"):
            LLM(**tiny_options, kv_events_config=config)
    with LLM(**tiny_options, kv_events_config=config):
        pass


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"enable_kv_cache_events": True, "endpoint": "tcp://router:5557"},
            "endpoint tcp://router:5557: it must",
        ),
        ({"enable_kv_cache_events": True, "endpoint": "ipc:///tmp/x"}, "it must be tcp://"),
        ({"enable_kv_cache_event": True}, "did you mean enable_kv_cache_events"),
        ({"publisher": "kafka"}, "publisher: must be one of zmq, null"),
        ({"hwm": 5}, "hwm: must be at least 100000"),
        ({"max_queue_size": 0}, "max_queue_size: must be at least 1"),
    ],
)
def test_a_mistake_is_named(tiny_options: dict[str, Any], config: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        LLM(**tiny_options, kv_events_config=config)


def test_nothing_is_published_unless_it_is_asked_for(demo_server: Served) -> None:
    assert call(demo_server, "/kv_event_sources") == []
