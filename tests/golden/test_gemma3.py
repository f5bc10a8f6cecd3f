"""Gemma 3 270M in float32 against the records that transformers made: five layers of six have a window of 512
tokens, and two prompts are longer. Fetched by `make test-large`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from test_smollm2 import LOGPROB, MARGIN, check_text_and_logprobs, run

from octavo import LLM, SamplingParams

DATA = Path(os.environ.get("OCTAVO_GOLDEN", Path(__file__).parent / "data"))

pytestmark = pytest.mark.models

KV = {"kv_cache_memory_bytes": 1 << 28, "dtype": "float32", "max_num_seqs": 16, "max_model_len": 4096}
PRESSURE = {
    "one batch": {},
    "small chunks": {"long_prefill_token_threshold": 100},
    # The longest sequence takes 101 blocks of the spine and 33 of the window.
    "few blocks": {"num_gpu_blocks_override": 105, "max_num_batched_tokens": 64},
}


@pytest.fixture(scope="module")
def gemma3(models: Path) -> str:
    return str(models / "gemma-3-270m-gguf" / "gemma-3-270m-q4_k_m.gguf")


@pytest.fixture(scope="module")
def gemma3_records() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / "gemma3.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("pressure", PRESSURE)
def test_tokens_and_logprobs(gemma3: str, gemma3_records: list[dict[str, Any]], pressure: str) -> None:
    with LLM(gemma3, **(KV | PRESSURE[pressure])) as llm:
        first = run(llm, gemma3_records, logprobs=5)
        for record, output in zip(gemma3_records, first, strict=True):
            check_text_and_logprobs(record, output)
        again = run(llm, gemma3_records, logprobs=5)
        for before, after in zip(first, again, strict=True):
            assert before.outputs[0].token_ids == after.outputs[0].token_ids
            assert before.outputs[0].logprobs == after.outputs[0].logprobs
        if pressure == "one batch":
            assert again[-1].num_cached_tokens == len(gemma3_records[-1]["prompt_token_ids"]) // 16 * 16


def test_every_step_given_the_tokens_before_it(gemma3: str, gemma3_records: list[dict[str, Any]]) -> None:
    """Past a near tie the texts may part; fed the reference's tokens, each step must still agree."""
    params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=1)
    prompts = [{"prompt_token_ids": r["prompt_token_ids"] + r["output_token_ids"]} for r in gemma3_records]
    with LLM(gemma3, **KV) as llm:
        outputs = llm.generate(prompts, params, use_tqdm=False)
    for record, output in zip(gemma3_records, outputs, strict=True):
        tokens = record["prompt_token_ids"] + record["output_token_ids"]
        expected = record["prompt_logprobs"] + record["output_logprobs"]
        for position in range(1, len(tokens)):
            entry = output.prompt_logprobs[position][tokens[position]]
            assert abs(entry.logprob - expected[position]) < LOGPROB, (record["id"], position)
            step = position - len(record["prompt_token_ids"])
            if step >= 0 and record["margins"][step] > MARGIN:
                assert entry.rank == 1, (record["id"], position)
