"""SmolLM2-135M in float32 against the records that transformers made, and against itself under pressure."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from octavo import LLM, SamplingParams

if TYPE_CHECKING:
    from pathlib import Path

    from octavo.engine import RequestOutput

Record = dict[str, Any]

# Tolerances of the records, see their README.
LOGPROB = 0.02
MARGIN = 0.05
NEIGHBOUR_GAP = 0.04

KV = {"kv_cache_memory_bytes": 1 << 29, "dtype": "float32", "max_num_seqs": 32}
# Ways to run the same prompts that must not change a single token.
PRESSURE = {
    "one batch": {},
    "no prefix cache": {"enable_prefix_caching": False},
    "chunks of 16": {"long_prefill_token_threshold": 16},
    "steps of 64 tokens": {"max_num_batched_tokens": 64, "max_num_seqs": 8},
    "few blocks": {"num_gpu_blocks_override": 70},
    "one step at a time": {"pipeline_depth": 1},
}


def greedy(record: Record, **more: Any) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=record["max_tokens"], ignore_eos=True, **more)


def prompt(record: Record) -> Any:
    if "messages" in record:
        return {"prompt_token_ids": record["prompt_token_ids"]}
    return record["prompt"]


def run(llm: LLM, records: list[Record], **more: Any) -> list[RequestOutput]:
    return llm.generate([prompt(r) for r in records], [greedy(r, **more) for r in records], use_tqdm=False)


def certain(record: Record) -> int:
    """The number of tokens before the first that two good engines may choose differently."""
    near_tie = record["first_near_tie"]
    return len(record["output_token_ids"]) if near_tie is None else near_tie


def check_text_and_logprobs(record: Record, output: RequestOutput) -> None:
    choice, n = output.outputs[0], certain(record)
    assert output.prompt_token_ids == record["prompt_token_ids"], record["id"]
    assert list(choice.token_ids)[:n] == record["output_token_ids"][:n], record["id"]
    if n == len(record["output_token_ids"]):
        assert choice.text == record["output_text"], record["id"]
    for position in range(n):
        entry = choice.logprobs[position]
        token = record["output_token_ids"][position]
        assert abs(entry[token].logprob - record["output_logprobs"][position]) < LOGPROB, (
            record["id"],
            position,
        )
        assert entry[token].rank == 1
        if position < len(record["top_logprobs"]):
            check_top(record["top_logprobs"][position], entry)


def check_top(expected: list[tuple[int, float]], entry: dict[int, Any]) -> None:
    for (token, logprob), (_, following) in itertools.pairwise(expected):
        if logprob - following > NEIGHBOUR_GAP:
            assert abs(entry[token].logprob - logprob) < LOGPROB


@pytest.fixture(scope="module")
def llm(gguf: Path) -> Any:
    with LLM(str(gguf), **KV) as llm:
        yield llm


@pytest.fixture(scope="module")
def alone(llm: LLM, records: list[Record]) -> list[RequestOutput]:
    """Each prompt on its own, one after the other."""
    return [run(llm, [record], logprobs=5)[0] for record in records]


def test_each_prompt_alone(records: list[Record], alone: list[RequestOutput]) -> None:
    for record, output in zip(records, alone, strict=True):
        check_text_and_logprobs(record, output)


def test_chat(llm: LLM, records: list[Record]) -> None:
    chats = [r for r in records if "messages" in r]
    assert chats
    outputs = llm.chat([r["messages"] for r in chats], [greedy(r) for r in chats], use_tqdm=False)
    for record, output in zip(chats, outputs, strict=True):
        assert output.prompt == record["rendered"]
        assert output.prompt_token_ids == record["prompt_token_ids"]
        n = certain(record)
        assert list(output.outputs[0].token_ids)[:n] == record["output_token_ids"][:n]


def test_stops_at_end_of_sequence(llm: LLM, records: list[Record]) -> None:
    ending = [r for r in records if r["first_eos"] is not None and r["first_eos"] < certain(r)]
    assert ending
    params = SamplingParams(temperature=0.0, max_tokens=48)
    for record, output in zip(
        ending, llm.generate([prompt(r) for r in ending], params, use_tqdm=False), strict=True
    ):
        choice = output.outputs[0]
        assert choice.text == record["output_text_to_eos"]
        assert choice.finish_reason == "stop"
        assert list(choice.token_ids) == record["output_token_ids"][: record["first_eos"] + 1]


def test_special_tokens_on_request(llm: LLM, records: list[Record]) -> None:
    certain_records = [r for r in records if r["first_near_tie"] is None]
    for record, output in zip(
        certain_records, run(llm, certain_records, skip_special_tokens=False), strict=True
    ):
        assert output.outputs[0].text == record["output_text_with_special"]


def test_every_step_given_the_tokens_before_it(llm: LLM, records: list[Record]) -> None:
    """Past a near tie the texts may part; fed the reference's tokens, each step must still agree."""
    prompts = [{"prompt_token_ids": r["prompt_token_ids"] + r["output_token_ids"]} for r in records]
    params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=1)
    for record, output in zip(records, llm.generate(prompts, params, use_tqdm=False), strict=True):
        entries = output.prompt_logprobs
        tokens = record["prompt_token_ids"] + record["output_token_ids"]
        expected = record["prompt_logprobs"] + record["output_logprobs"]
        assert entries[0] is None
        assert len(entries) == len(tokens)
        for position in range(1, len(tokens)):
            entry = entries[position][tokens[position]]
            assert abs(entry.logprob - expected[position]) < LOGPROB, (record["id"], position)
            step = position - len(record["prompt_token_ids"])
            if step >= 0 and record["margins"][step] > MARGIN:
                assert entry.rank == 1, (record["id"], position)


def check_same(record: Record, output: RequestOutput, expected: RequestOutput) -> None:
    """Not close: equal."""
    assert output.outputs[0].token_ids == expected.outputs[0].token_ids, record["id"]
    assert output.outputs[0].text == expected.outputs[0].text
    assert output.outputs[0].logprobs == expected.outputs[0].logprobs
    check_text_and_logprobs(record, output)


@pytest.mark.parametrize("source", ["gguf", "hf_folder"])
@pytest.mark.parametrize("pressure", PRESSURE)
def test_same_tokens_under_pressure(
    request: pytest.FixtureRequest,
    records: list[Record],
    alone: list[RequestOutput],
    pressure: str,
    source: str,
) -> None:
    with LLM(str(request.getfixturevalue(source)), **(KV | PRESSURE[pressure])) as llm:
        # Twice: the second round finds the first one's prefixes.
        for _ in range(2):
            outputs = run(llm, records, logprobs=5)
            for record, expected, output in zip(records, alone, outputs, strict=True):
                check_same(record, output, expected)
        stats = llm.stats()
        assert stats["blocks_used"] == 0
        if pressure == "few blocks":
            assert stats["preemptions"] > 0
        if pressure == "no prefix cache":
            assert all(output.num_cached_tokens == 0 for output in outputs)


def test_seeded_sampling_does_not_depend_on_the_batch(llm: LLM, records: list[Record]) -> None:
    params = [
        SamplingParams(
            temperature=0.9,
            top_p=0.95,
            top_k=50,
            seed=i,
            max_tokens=24,
            ignore_eos=True,
            presence_penalty=0.3,
        )
        for i in range(len(records))
    ]
    together = llm.generate([prompt(r) for r in records], params, use_tqdm=False)
    for record, each, expected in zip(records, params, together, strict=True):
        single = llm.generate(prompt(record), each, use_tqdm=False)[0]
        assert single.outputs[0].token_ids == expected.outputs[0].token_ids, record["id"]


def test_each_prompt_alone_from_a_hugging_face_folder(
    hf_folder: Path, records: list[Record], alone: list[RequestOutput]
) -> None:
    with LLM(str(hf_folder), **KV) as llm:
        for record, expected in zip(records, alone, strict=True):
            check_same(record, run(llm, [record], logprobs=5)[0], expected)
