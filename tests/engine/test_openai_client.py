"""The official OpenAI client against a real server with a real model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import openai
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from served import Served

MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def client(demo_server: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=demo_server.url, api_key="none", max_retries=0) as client:
        yield client


def test_models(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert model.id == "demo"
    assert model.object == "model"
    assert model.max_model_len == 8192


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="demo", messages=MESSAGES, temperature=0, max_tokens=32)
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert "Paris" in choice.message.content
    assert choice.finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.id.startswith("chatcmpl-")


def test_usage_tells_of_the_prefix_cache(client: openai.OpenAI) -> None:
    messages = [{"role": "user", "content": "Count the words of this sentence, please. " * 8}]
    replies = [
        client.chat.completions.create(model="demo", messages=messages, temperature=0, max_tokens=1)
        for _ in range(2)
    ]
    cached = replies[1].usage.prompt_tokens_details.cached_tokens
    assert replies[1].usage.prompt_tokens - 17 <= cached < replies[1].usage.prompt_tokens


def test_a_request_that_is_out_of_time_is_cut_off(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="demo",
        prompt="Once upon a time",
        max_tokens=4000,
        extra_body={"timeout_s": 1, "ignore_eos": True},
    )
    (choice,) = answer.choices
    assert (choice.finish_reason, choice.stop_reason) == ("length", "timeout")
    assert 0 < answer.usage.completion_tokens < 4000


def test_chat_stream_joins_to_the_whole_answer(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="demo", messages=MESSAGES, temperature=0, max_tokens=32)
    chunks = list(
        client.chat.completions.create(
            model="demo",
            messages=MESSAGES,
            temperature=0,
            max_tokens=32,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert {chunk.id for chunk in chunks} == {chunks[0].id}


def test_chat_logprobs(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="demo", messages=MESSAGES, temperature=0, max_tokens=4, logprobs=True, top_logprobs=3
    )
    entries = answer.choices[0].logprobs.content
    assert len(entries) == 4
    assert "".join(entry.token for entry in entries) == answer.choices[0].message.content
    for entry in entries:
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].logprob == entry.logprob
        assert bytes(entry.bytes).decode() == entry.token


def test_completions(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="demo", prompt=["The capital of France is", "1, 2, 3,"], temperature=0, max_tokens=6, logprobs=2
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.choices[0].text.startswith(" Paris.")
    assert answer.choices[1].text.startswith(" 4")
    logprobs = answer.choices[0].logprobs
    assert "".join(logprobs.tokens) == answer.choices[0].text
    assert len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == 6
    assert answer.choices[0].finish_reason == "length"


def test_completion_stream_with_echo(client: openai.OpenAI) -> None:
    chunks = list(
        client.completions.create(
            model="demo",
            prompt="The capital of France is",
            temperature=0,
            max_tokens=4,
            echo=True,
            stream=True,
        )
    )
    text = "".join(chunk.choices[0].text for chunk in chunks)
    assert text.startswith("The capital of France is Paris.")
    assert chunks[-1].choices[0].finish_reason == "length"


def test_n_and_seed(client: openai.OpenAI) -> None:
    def texts() -> list[str]:
        answer = client.completions.create(
            model="demo", prompt="Once upon a time", temperature=1.0, seed=7, max_tokens=12, n=3
        )
        return [choice.text for choice in answer.choices]

    first = texts()
    assert len(set(first)) == 3
    assert texts() == first


def test_stop_string(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="demo", prompt="1, 2, 3, 4, 5, 6, 7,", temperature=0, max_tokens=40, stop=[" 10"]
    )
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].text.startswith(" 8, 9,")
    assert " 10" not in answer.choices[0].text


def test_unknown_model(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="demo") as caught:
        client.chat.completions.create(model="missing", messages=MESSAGES)
    assert caught.value.body["param"] == "model"


def test_prompt_too_long(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="8192") as caught:
        client.completions.create(model="demo", prompt=[1] * 9000)
    assert "9000" in str(caught.value)


def test_bad_value_names_the_field(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="demo", messages=MESSAGES, temperature=9)
    assert caught.value.body["param"] == "temperature"
