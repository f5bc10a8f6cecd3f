"""KV that the device gave up comes back from the host and from disk, and from nowhere else."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
from served import Served, wait_until

from octavo import LLM, SamplingParams
from octavo.engine.errors import ModelError

if TYPE_CHECKING:
    from pathlib import Path

    from octavo.cli.api import Api

PROMPT_LEN = 200
FULL_BLOCKS = PROMPT_LEN // 16
ANSWER = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)


def prompt(number: int) -> list[int]:
    return [(number * 7919 + place * 31) % 40000 + 100 for place in range(PROMPT_LEN)]


@pytest.fixture(scope="module")
def small(tiny_options: dict[str, Any]) -> dict[str, Any]:
    """A device of 40 blocks, three prompts."""
    options = {name: value for name, value in tiny_options.items() if name != "kv_cache_memory_bytes"}
    return {**options, "num_gpu_blocks_override": 40, "max_model_len": 512}


@pytest.fixture(scope="module")
def expected(small: dict[str, Any]) -> list[list[int]]:
    """What a model without tiers and without a cache says to each prompt."""
    with LLM(**small, enable_prefix_caching=False) as llm:
        return [answers(llm, [number])[0][0] for number in range(8)]


def answers(llm: LLM, numbers: list[int]) -> list[tuple[list[int], int]]:
    """Tokens and the number of cached prompt tokens of each."""
    outputs = llm.generate(
        [{"prompt_token_ids": prompt(number)} for number in numbers], ANSWER, use_tqdm=False
    )
    return [(list(output.outputs[0].token_ids), output.num_cached_tokens or 0) for output in outputs]


def test_prompts_that_the_device_gave_up_come_back(small: dict[str, Any], expected: list[list[int]]) -> None:
    with LLM(**small, kv_offloading_size=0.01) as llm:
        first = [answers(llm, [number])[0] for number in range(8)]
        again = [answers(llm, [number])[0] for number in range(8)]
    assert [tokens for tokens, _ in first] == [tokens for tokens, _ in again] == expected
    assert [cached for _, cached in first] == [0] * 8
    assert [cached for _, cached in again] == [FULL_BLOCKS * 16] * 8


def test_preempted_requests_come_back(small: dict[str, Any]) -> None:
    long = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True)
    requests: list[Any] = [{"prompt_token_ids": prompt(number)[:60]} for number in range(6)]

    def run(**options: Any) -> list[list[int]]:
        with LLM(**small, **options) as llm:
            outputs = llm.generate(requests, long, use_tqdm=False)
            return [list(output.outputs[0].token_ids) for output in outputs]

    assert run(kv_offloading_size=0.01) == run(enable_prefix_caching=False)


def ask(api: Api, number: int) -> tuple[str, int]:
    """Text and the number of cached prompt tokens."""
    body = {
        "model": api.models()[0],
        "prompt": prompt(number),
        "max_tokens": 8,
        "temperature": 0,
        "ignore_eos": True,
        "stream_options": {"include_usage": True},
    }
    chunks = list(api.stream("/completions", body))
    text = "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])
    details = chunks[-1]["usage"].get("prompt_tokens_details") or {}
    return text, details.get("cached_tokens", 0)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and len(path.name) == 64]


def test_host_memory_outlives_the_worker(small: dict[str, Any]) -> None:
    with Served(small, kv_offloading_size=0.01) as served:
        api = served.api()
        first = [ask(api, number) for number in range(6)]
        worker = served.worker()
        os.kill(worker, signal.SIGKILL)
        served.worker(but=worker)
        text, cached = ask(api, 0)
        assert (text, cached) == (first[0][0], FULL_BLOCKS * 16)


def test_a_restart_finds_prefixes_but_nothing_damaged(small: dict[str, Any], tmp_path: Path) -> None:
    disk = {"kv_disk_path": tmp_path / "kv", "kv_disk_size": 0.05}
    with Served(small, **disk) as served:
        first = [ask(served.api(), number) for number in range(3)]
        wait_until(lambda: len(files(tmp_path)) >= 3 * FULL_BLOCKS)
        # As a crash does: nothing is written at the end.
        served.process.kill()
        served.end()
    assert (tmp_path / "kv").stat().st_mode & 0o777 == 0o700

    with Served(small, **disk) as served:
        again = [ask(served.api(), number) for number in range(3)]
        assert again == [(text, FULL_BLOCKS * 16) for text, _ in first]
        served.process.kill()
        served.end()

    stored = sorted(files(tmp_path))
    for place, path in enumerate(stored):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content[: len(content) // 3] if place % 3 == 0 else content)
    (stored[0].parent / ("f" * 64)).write_bytes(b"not one of ours")
    with Served(small, **disk) as served:
        assert [ask(served.api(), number)[0] for number in range(3)] == [text for text, _ in first]
        # One line for what is seen to be wrong at start, one for what only reading shows.
        complaints = [line for line in served.lines if "WARN KV cache on disk" in line]
        assert ["are not used" in line for line in complaints] == [True, False], complaints
        assert "is damaged" in complaints[1]


def test_another_model_does_not_read_them(small: dict[str, Any], tmp_path: Path) -> None:
    disk = {"kv_disk_path": str(tmp_path / "kv"), "kv_disk_size": 0.05}
    with Served(small, **disk) as served:
        ask(served.api(), 0)
        wait_until(lambda: len(files(tmp_path)) >= FULL_BLOCKS)
        served.process.kill()
        served.end()
    with Served(small, **disk, seed=1) as served:
        assert ask(served.api(), 0)[1] == 0


def test_blocks_of_another_cache_type_are_not_read(small: dict[str, Any], tmp_path: Path) -> None:
    disk = {
        "kv_disk_path": str(tmp_path / "kv"),
        "kv_disk_size": 0.05,
        "kv_cache_dtype": "int8_per_token_head",
    }
    with Served(small, **disk) as served:
        first, _ = ask(served.api(), 0)
        wait_until(lambda: len(files(tmp_path)) >= FULL_BLOCKS)
        served.process.kill()
        served.end()
    with Served(small, **disk) as served:
        assert ask(served.api(), 0) == (first, FULL_BLOCKS * 16)
    with Served(small, **{**disk, "kv_cache_dtype": "auto"}) as served:
        assert ask(served.api(), 0)[1] == 0


def test_what_cannot_be_is_said_at_start(small: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = [
        ({"kv_disk_path": str(tmp_path / "file" / "kv")}, "kv-disk-path"),
        ({"kv_offloading_size": 0.00001}, "4 blocks"),
        ({"kv_offloading_size": 0.01, "enable_prefix_caching": False}, "enable_prefix_caching"),
        ({"kv_disk_path": str(tmp_path / "kv"), "kv_disk_size": 0.000001}, "kv-disk-size"),
    ]
    for options, message in refused:
        with pytest.raises((ModelError, ValueError), match=message):
            LLM(**small, **options)
