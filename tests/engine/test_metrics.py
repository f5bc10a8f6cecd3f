"""`/metrics` is what docs/metrics.md says, and the log has its line."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from served import Served, completion, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.cli.api import Api

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
ROW = re.compile(r"\| `([a-z_:0-9]+)` \| (counter|gauge|histogram) \|(.*?)\| (.+) \|")
SERIES = re.compile(r"([a-z_:0-9]+)(?:\{(.*)\})? ([-+0-9.eE]+|[+-]Inf)")
BASE = {"model_name", "engine"}
PROMPT_LEN = 200


def table() -> dict[str, tuple[str, set[str]]]:
    """Type and labels of each metric of the page."""
    metrics = {}
    for name, kind, labels, _ in ROW.findall(PAGE.read_text()):
        own = set(re.findall("`([a-z_]+)`", labels))
        base = BASE if name.startswith("vllm:") else set()
        metrics[name] = (kind, (base | own) - {"engine"} if "no `engine`" in labels else base | own)
    return metrics


def scrape(url: str) -> dict[str, tuple[str, set[str], dict[str, float]]]:
    """Type, labels and series of each metric of a server."""
    with urllib.request.urlopen(url.removesuffix("/v1") + "/metrics", timeout=60) as response:
        lines = response.read().decode().splitlines()
    kinds = dict(line.split()[2:4] for line in lines if line.startswith("# TYPE"))
    found: dict[str, tuple[str, set[str], dict[str, float]]] = {}
    for line in lines:
        if line.startswith("#"):
            continue
        match = SERIES.fullmatch(line)
        assert match is not None, line
        series, labels, value = match.groups()
        name = series if series in kinds else re.sub("_(bucket|sum|count)$", "", series)
        own = set(re.findall('([a-z_]+)="', labels or "")) - {"le"}
        _, known, values = found.setdefault(name, (kinds[name], own, {}))
        assert own == known, f"{name} has different labels"
        values[f"{series}{{{labels}}}" if labels else series] = float(value)
    return found


def prompt(number: int) -> list[int]:
    return [(number * 7919 + place * 31) % 40000 + 100 for place in range(PROMPT_LEN)]


def ask(api: Api, number: int, user: str) -> None:
    body = {"prompt": prompt(number), "max_tokens": 8, "temperature": 0, "user": user, "ignore_eos": True}
    for _ in api.stream("/completions", {**body, "model": api.models()[0]}):
        pass


@pytest.fixture(scope="module")
def everything(tiny_options: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with all that has metrics, and a device of 40 blocks."""
    options = {name: value for name, value in tiny_options.items() if name != "kv_cache_memory_bytes"}
    more = {
        "num_gpu_blocks_override": 40,
        "max_model_len": 512,
        "kv_disk_path": tmp_path_factory.mktemp("disk") / "kv",
        "kv_disk_size": 0.05,
        "kv_offloading_size": 0.01,
        "metrics_max_tenants": 2,
        "kv_events_config": '{"enable_kv_cache_events": true, "endpoint": "tcp://127.0.0.1:0"}',
    }
    with Served(options, **more) as server:
        yield server
        server.process.terminate()
        assert server.end() == 0, "\n".join(server.lines)


def test_the_page_and_a_server_agree(everything: Served) -> None:
    api = everything.api()
    for number in (*range(6), *range(6)):
        ask(api, number, f"user {number}")
    expected, found = table(), scrape(everything.url)
    assert len(expected) > 60, "the page's tables are read"
    assert set(found) - set(expected) == set(), "exported and not on the page"
    assert set(expected) - set(found) == set(), "on the page and not exported"
    for name, (kind, labels) in expected.items():
        assert found[name][0] == kind, name
        if name == "vllm:cache_config_info":
            assert (
                labels < found[name][1] >= {"block_size", "cache_dtype", "num_gpu_blocks", "num_cpu_blocks"}
            )
        else:
            assert found[name][1] == labels, name


def test_bytes_and_times_of_the_tiers_are_those_that_were_moved(everything: Served) -> None:
    api = everything.api()

    def total(name: str) -> float:
        return sum(scrape(everything.url)[f"vllm:{name}"][2].values())

    for number in range(6):
        ask(api, number, "x")
    ask(api, 0, "x")
    assert total("kv_offload_load_bytes_total") > 0
    assert total("kv_offload_store_bytes_total") > 0
    assert total("kv_offload_load_time_total") > 0
    assert total("kv_offload_store_time_total") > 0
    assert 0 < total("kv_offload_cpu_cache_filled_perc") <= 1
    wait_until(lambda: total("kv_offload_tiering_active_cascade_jobs") == 0)
    block = 2 * 2 * 2 * 16 * 16 * 4
    assert total("kv_offload_tiering_write_bytes_total") % block == 0
    assert total("kv_offload_tiering_write_bytes_total") >= 6 * (PROMPT_LEN // 16) * block
    assert total("kv_offload_tiering_write_time_total") > 0
    assert 0 < total("kv_offload_tiering_usage_perc") < 1
    assert total("worker_resident_memory_bytes") > 50e6
    by_source = scrape(everything.url)["vllm:prompt_tokens_by_source_total"][2]
    assert len(by_source) == 3
    assert sum(by_source.values()) == total("prompt_tokens_total")


def test_a_line_every_ten_seconds_says_how_it_goes(everything: Served) -> None:
    completion(everything.api(), "Once upon a time", 100, lambda _: None)

    def lines() -> list[str]:
        return [line for line in everything.lines if "KV usage" in line and "generation 0.0" not in line]

    wait_until(lambda: bool(lines()))
    assert "prefix cache hits" in lines()[-1]
    assert "from host and disk" in lines()[-1]
