"""Models with sliding windows: their layers have blocks of their own, and tokens are those of one group."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from served import Served, completion

from octavo import LLM, SamplingParams
from octavo.engine.errors import ModelError
from octavo.executor import kv_cache

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WINDOW = 48
KINDS = {
    "windows alone": {},
    "one in three is full": {
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    },
}
# Some shorter than the window, some many times longer, some with a beginning in common.
PROMPTS = [
    {"prompt_token_ids": [(7 * at + start) % 400 + 3 for at in range(length)]}
    for start, length in (
        *((0, 700), (1, 20), (0, 500), (5, 333), (2, 90), (0, 700)),
        # These grow together.
        *((start, 30) for start in range(10, 26)),
    )
]
PARAMS = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True, logprobs=1)


@pytest.fixture(params=KINDS)
def options(request: pytest.FixtureRequest, tiny_options: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    tiny = json.loads(Path(tiny_options["model"], "config.json").read_text())
    config = tiny | {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
    config |= {"num_hidden_layers": 3, "sliding_window": WINDOW, **KINDS[request.param]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return {**tiny_options, "model": str(tmp_path)}


def outcome(llm: LLM) -> list[Any]:
    outputs = llm.generate(PROMPTS, PARAMS, use_tqdm=False)
    return [(output.outputs[0].token_ids, output.outputs[0].logprobs) for output in outputs]


@pytest.fixture
def in_one_group(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What the same model gives whose layers all keep everything, without a prefix cache."""
    divided = kv_cache.layer_groups

    def whole(*args: Any) -> Sequence[kv_cache.LayerGroup]:
        config, block_size, dtype, _ = args
        (group,) = divided(config, block_size, dtype, 1)
        return (group,)

    with monkeypatch.context() as patch:
        patch.setattr(kv_cache, "layer_groups", whole)
        with LLM(**options, enable_prefix_caching=False) as llm:
            yield outcome(llm)


def test_tokens_do_not_depend_on_what_is_given_back(options: dict[str, Any], in_one_group: list[Any]) -> None:
    with LLM(**options) as llm:
        # The second time from the prefix cache.
        for _ in range(2):
            assert outcome(llm) == in_one_group
        again = llm.generate(PROMPTS[:1], PARAMS, use_tqdm=False)[0]
        assert again.num_cached_tokens == 688
        assert llm.stats()["blocks_used"] == 0


PRESSURE = {
    "few blocks": {"num_gpu_blocks_override": 50},
    "few sequences": {"max_num_seqs": 2, "max_num_batched_tokens": 32},
    "small chunks": {"long_prefill_token_threshold": 24},
}


@pytest.mark.parametrize("pressure", PRESSURE)
def test_tokens_do_not_depend_on_pressure(
    options: dict[str, Any], in_one_group: list[Any], pressure: str
) -> None:
    with LLM(**options | PRESSURE[pressure]) as llm:
        for _ in range(2):
            assert outcome(llm) == in_one_group
        if pressure == "few blocks":
            assert llm.stats()["preemptions"] > 0


def test_a_worker_in_the_place_of_another_has_the_same_groups(options: dict[str, Any]) -> None:
    prompt, alone = "Once upon a time " * 40, ""
    with Served(options) as server:
        for kills in (False, True):
            worker = server.worker()

            def on_chunk(count: int, worker: int = worker, kills: bool = kills) -> None:
                if kills and count == 20:
                    os.kill(worker, signal.SIGKILL)

            text, reason = completion(server.api(), prompt, 60, on_chunk)
            assert reason == "length"
            alone = alone or text
            assert text == alone
        assert server.worker() != worker


def test_tiers_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="not for models with several layer groups yet"):
        LLM(**options, kv_offloading_size=0.1)
