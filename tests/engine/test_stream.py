"""Streams: as they come, all at once, and left early."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
import threading
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest
from served import children, wait_until

from octavo import AsyncEngine, Engine, RequestOutputKind, SamplingParams, TokensPrompt
from octavo.engine import EngineDeadError

if TYPE_CHECKING:
    from octavo import LLM


def params(kind: str, max_tokens: int = 12) -> SamplingParams:
    output_kind = RequestOutputKind[kind]
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, output_kind=output_kind)


async def test_kinds_of_output_add_up_to_the_same(llm: LLM) -> None:
    seen = {}
    for kind in ("CUMULATIVE", "DELTA", "FINAL_ONLY"):
        seen[kind] = [output async for output in llm.stream("Hello, my name is", params(kind))]
        assert [output.finished for output in seen[kind]] == [False] * (len(seen[kind]) - 1) + [True]
    (final,) = seen["FINAL_ONLY"]
    whole = final.outputs[0]
    assert len(whole.token_ids) == 12
    assert seen["CUMULATIVE"][-1].outputs[0] == whole
    texts = [output.outputs[0].text for output in seen["CUMULATIVE"]]
    assert len(texts) > 4
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))
    assert "".join(choice.text for output in seen["DELTA"] for choice in output.outputs) == whole.text


async def test_many_streams_share_a_thread_and_stay_apart(llm: LLM) -> None:
    async def last(prompt: str) -> list[int]:
        outputs = [output async for output in llm.stream(prompt, params("CUMULATIVE"))]
        return outputs[-1].outputs[0].token_ids

    prompts = [f"Number {index} is" for index in range(40)]
    together = await asyncio.gather(*map(last, prompts))
    batch = llm.generate(prompts, params("FINAL_ONLY"), use_tqdm=False)
    assert together == [output.outputs[0].token_ids for output in batch]


async def test_leaving_a_stream_frees_its_memory(llm: LLM) -> None:
    async with aclosing(llm.stream("Once upon a time", params("DELTA", 900))) as stream:
        async for _ in stream:
            break
    async with asyncio.timeout(30):
        while llm.stats()["blocks_used"] > 0:
            await asyncio.sleep(0.01)
    assert llm.stats()["running"] == 0


async def test_a_conversation_streams(llm: LLM) -> None:
    outputs = [o async for o in llm.stream([{"role": "user", "content": "Hi"}], params("FINAL_ONLY"))]
    assert "Hi" in outputs[0].prompt


async def test_the_asynchronous_engine_streams_by_request_id(tiny_options: dict[str, Any]) -> None:
    engine = AsyncEngine(**tiny_options)
    prompt = TokensPrompt(prompt_token_ids=(await engine.get_tokenizer()).encode("Hello"))
    outputs = [output async for output in engine.generate(prompt, params("CUMULATIVE"), "mine")]
    assert {output.request_id for output in outputs} == {"mine"}
    assert outputs[-1].finished
    unfinished = engine.generate("Once", params("DELTA", 900))
    await anext(unfinished)
    engine.shutdown()
    with pytest.raises(EngineDeadError):
        async for _ in unfinished:
            pass


async def test_a_mistake_is_raised_in_the_stream(llm: LLM) -> None:
    with pytest.raises(ValueError, match="49152"):
        async for _ in llm.stream([49152], params("DELTA")):
            pass


async def test_an_aborted_stream_ends_with_its_reason(tiny_options: dict[str, Any]) -> None:
    engine = AsyncEngine(**tiny_options)
    stream = engine.generate("Once", params("CUMULATIVE", 900), "mine")
    first = await anext(stream)
    await engine.abort(["other", "mine"])
    outputs = [output async for output in stream]
    assert outputs[-1].finished
    assert outputs[-1].outputs[0].finish_reason == "abort"
    assert outputs[-1].outputs[0].text.startswith(first.outputs[0].text)
    assert [output.finished for output in outputs[:-1]] == [False] * (len(outputs) - 1)
    engine.shutdown()


def test_an_event_loop_that_is_closed_leaves_other_streams_alone(llm: LLM) -> None:
    async def begin() -> object:
        stream = llm.stream("Once upon a time", params("DELTA", 900))
        await anext(stream)
        return stream

    async def whole() -> str:
        (output,) = [o async for o in llm.stream("Hello", params("FINAL_ONLY"))]
        while llm.stats()["blocks_used"] > 0:
            await asyncio.sleep(0.01)
        return str(output.outputs[0].text)

    left = asyncio.new_event_loop()
    stream = left.run_until_complete(begin())
    left.close()
    assert asyncio.run(asyncio.wait_for(whole(), 60))
    del stream


def test_an_engine_can_be_closed_by_its_own_thread(tiny_options: dict[str, Any]) -> None:
    class CloseIt(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "starting it again" in record.getMessage():
                engine.close()
                closed.set()

    closed, handler = threading.Event(), CloseIt()
    engine = Engine(**{**tiny_options, "worker": "process"})
    logging.getLogger("octavo").addHandler(handler)
    try:
        (worker,) = children(os.getpid())
        os.kill(worker, signal.SIGKILL)
        assert closed.wait(60)
    finally:
        logging.getLogger("octavo").removeHandler(handler)
    with pytest.raises(EngineDeadError):
        engine.generate("Hello")
    wait_until(lambda: not children(os.getpid()))
