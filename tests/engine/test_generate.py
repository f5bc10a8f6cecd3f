"""What `LLM` gives back, and what it refuses."""

from __future__ import annotations

import multiprocessing
import shutil
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from octavo import LLM, Engine, SamplingParams
from octavo.engine import EngineDeadError, ModelError

if TYPE_CHECKING:
    from pathlib import Path

PROMPTS = ["Hello, my name is", "The capital of France is", "Once upon a time", "1 + 1 ="]
SAMPLED = SamplingParams(temperature=1.0, top_p=0.95, seed=7, max_tokens=16, ignore_eos=True)
GREEDY = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)


def tokens(outputs: list[Any]) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs]


def test_outputs_come_in_the_order_of_the_prompts(llm: LLM) -> None:
    lengths = [31, 3, 17, 9]
    params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in lengths]
    outputs = llm.generate(PROMPTS, params, use_tqdm=False)
    assert [output.prompt for output in outputs] == PROMPTS
    assert [len(output.outputs[0].token_ids) for output in outputs] == lengths
    assert all(output.finished and output.outputs[0].finish_reason == "length" for output in outputs)


def test_all_forms_of_a_prompt_are_the_same(llm: LLM) -> None:
    ids = llm.get_tokenizer().encode(PROMPTS[0])
    forms = [PROMPTS[0], {"prompt": PROMPTS[0]}, {"prompt_token_ids": ids}, ids]
    outputs = llm.generate(forms, GREEDY, use_tqdm=False)
    assert [output.prompt_token_ids for output in outputs] == [ids] * 4
    assert len({tuple(output.outputs[0].token_ids) for output in outputs}) == 1
    assert tokens(llm.generate(ids, GREEDY, use_tqdm=False)) == [outputs[0].outputs[0].token_ids]


@pytest.mark.parametrize("params", [GREEDY, SAMPLED])
def test_a_request_gives_the_same_tokens_alone_and_in_a_batch(llm: LLM, params: SamplingParams) -> None:
    alone = [tokens(llm.generate(prompt, params, use_tqdm=False))[0] for prompt in PROMPTS]
    crowd = llm.generate(PROMPTS * 8, params, use_tqdm=False)
    assert tokens(crowd) == alone * 8


def test_a_script_gives_the_same_tokens_every_time(tiny_options: dict[str, Any]) -> None:
    unseeded = SamplingParams(temperature=1.0, max_tokens=8, ignore_eos=True)
    runs = []
    for _ in range(2):
        with LLM(**tiny_options, seed=3) as fresh:
            runs.append(tokens(fresh.generate(PROMPTS, unseeded, use_tqdm=False)))
    assert runs[0] == runs[1]


def test_choices_differ_and_the_first_does_not_depend_on_n(llm: LLM) -> None:
    several = SAMPLED.clone()
    several.n = 4
    (output,) = llm.generate(PROMPTS[0], several, use_tqdm=False)
    assert [choice.index for choice in output.outputs] == [0, 1, 2, 3]
    assert len({tuple(choice.token_ids) for choice in output.outputs}) == 4
    assert output.outputs[0].token_ids == tokens(llm.generate(PROMPTS[0], SAMPLED, use_tqdm=False))[0]


def test_log_probabilities_are_by_token(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, logprobs=3, prompt_logprobs=2)
    (output,) = llm.generate(PROMPTS[1], params, use_tqdm=False)
    choice = output.outputs[0]
    assert choice.logprobs is not None
    assert output.prompt_logprobs is not None
    for token, entry in zip(choice.token_ids, choice.logprobs, strict=True):
        assert len(entry) == 3
        assert entry[token].rank == 1
        assert entry[token].decoded_token == llm.get_tokenizer().decode(token)
    total = sum(entry[token].logprob for token, entry in zip(choice.token_ids, choice.logprobs, strict=True))
    assert choice.cumulative_logprob == pytest.approx(total)
    assert output.prompt_logprobs[0] is None
    for token, entry in zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:], strict=True):
        assert entry is not None
        assert token in entry
        assert 2 <= len(entry) <= 3


def test_stop_strings_and_tokens_end_the_text(llm: LLM) -> None:
    (free,) = llm.generate(PROMPTS[0], GREEDY, use_tqdm=False)
    text, ids = free.outputs[0].text, free.outputs[0].token_ids
    piece = llm.get_tokenizer().decode(ids[3])
    (at_text,) = llm.generate(
        PROMPTS[0], SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, stop=piece), use_tqdm=False
    )
    stopped = at_text.outputs[0]
    assert (stopped.finish_reason, stopped.stop_reason) == ("stop", piece)
    assert stopped.text == text[: text.index(piece)]
    (at_token,) = llm.generate(
        PROMPTS[0],
        SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, stop_token_ids=[ids[3]]),
        use_tqdm=False,
    )
    assert at_token.outputs[0].stop_reason == ids[3]
    assert at_token.outputs[0].token_ids == ids[: ids.index(ids[3]) + 1]


def test_a_conversation_goes_through_the_template(llm: LLM) -> None:
    conversation = [{"role": "user", "content": "Hello"}]
    one, other = llm.chat([conversation, [{"role": "user", "content": "Bye"}]], GREEDY, use_tqdm=False)
    rendered = llm.get_tokenizer().apply_chat_template(
        conversation, add_generation_prompt=True, tokenize=False
    )
    assert one.prompt == rendered
    assert one.prompt_token_ids == llm.get_tokenizer().apply_chat_template(
        conversation, add_generation_prompt=True
    )
    assert "Bye" in other.prompt
    plain = "{% for m in messages %}{{ m.content }}{% endfor %}"
    (own,) = llm.chat(conversation, GREEDY, use_tqdm=False, chat_template=plain)
    assert own.prompt == "Hello"


def test_prefixes_are_cached_and_forgotten(llm: LLM) -> None:
    long = {"prompt_token_ids": list(range(100, 200))}
    llm.generate(long, GREEDY, use_tqdm=False)
    (again,) = llm.generate(long, GREEDY, use_tqdm=False)
    assert again.num_cached_tokens == 96
    assert llm.reset_prefix_cache()
    (fresh,) = llm.generate(long, GREEDY, use_tqdm=False)
    assert fresh.num_cached_tokens == 0
    (salted,) = llm.generate({**long, "cache_salt": "other"}, GREEDY, use_tqdm=False)
    assert salted.num_cached_tokens == 0


def test_a_kept_prompt_outlives_others(tiny_options: dict[str, Any]) -> None:
    keeping = SamplingParams(temperature=0, max_tokens=2, cache_ttl_s=60)
    kept, other = ({"prompt_token_ids": list(range(start, start + 160))} for start in (100, 400))
    with LLM(**tiny_options, num_gpu_blocks_override=70, max_cache_ttl=60) as small:
        small.generate([kept, other], [keeping, GREEDY], use_tqdm=False)
        small.generate({"prompt_token_ids": list(range(1000, 1900))}, GREEDY, use_tqdm=False)
        first, second = small.generate([kept, other], GREEDY, use_tqdm=False)
        assert (first.num_cached_tokens, second.num_cached_tokens < 144) == (144, True)
        with pytest.raises(ValueError, match=r"cache_ttl_s is 61.*max-cache-ttl"):
            small.generate(kept, SamplingParams(cache_ttl_s=61), use_tqdm=False)


def test_a_progress_bar_is_shown_where_it_is_wanted(llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
    llm.generate(PROMPTS, GREEDY)
    assert "4/4" in capsys.readouterr().err
    llm.generate(PROMPTS, GREEDY, use_tqdm=False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("prompts", "params", "message"),
    [
        (PROMPTS, [GREEDY], "sampling_params has 1 entries for 4 prompts"),
        ({"multi_modal_data": {"image": 1}, "prompt": "x"}, GREEDY, "multi_modal_data is not supported"),
        ({"text": "x"}, GREEDY, "text is not supported|needs prompt"),
        ([[1, -2]], GREEDY, "prompt_token_ids must be"),
        ([[49152]], GREEDY, "49152"),
        ([[5] * 1024], GREEDY, "1024"),
        ("word " * 5000, GREEDY, "1023"),
        ("x", SamplingParams(logprobs=21), "logprobs is 21"),
        ("x", SamplingParams(stop_token_ids=[49152]), "stop_token_ids: token id 49152"),
        ("x", "greedy", "sampling_params must be"),
    ],
)
def test_a_mistake_is_a_value_error_that_names_it(llm: LLM, prompts: Any, params: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        llm.generate(prompts, params, use_tqdm=False)
    assert len(tokens(llm.generate(PROMPTS[0], GREEDY, use_tqdm=False))[0]) == 16


def test_unknown_and_unsupported_arguments_are_told_apart(llm: LLM) -> None:
    with pytest.raises(TypeError, match="unknown option max_num_sequences; did you mean max_num_seqs"):
        LLM("demo", max_num_sequences=4)
    with pytest.raises(ValueError, match="tensor_parallel_size cannot be 2"):
        LLM("demo", tensor_parallel_size=2)
    with pytest.raises(ValueError, match="lora_request is not supported"):
        llm.generate("x", GREEDY, lora_request=object())
    with pytest.raises(TypeError, match="unexpected argument 'temperature'"):
        llm.generate("x", temperature=0)


def test_a_model_that_cannot_be_loaded_is_one_line(tmp_path: Path, gguf: Path) -> None:
    for worker in ("inline", "process"):
        (tmp_path / "config.json").write_text('{"architectures": ["StrangeForCausalLM"]}')
        with pytest.raises(ModelError, match=r"config.json lacks") as refused:
            Engine(str(tmp_path), tokenizer=str(gguf), worker=worker)
        assert "\n" not in str(refused.value)
    with pytest.raises(ModelError, match="does not exist"):
        Engine("./nothing.gguf")


def test_a_closed_engine_says_so(tiny_options: dict[str, Any]) -> None:
    with Engine(**tiny_options) as engine:
        pass
    with pytest.raises(EngineDeadError, match="closed"):
        engine.generate("x")
    engine.close()


def test_end_tokens_outside_the_vocabulary_are_left_out(tiny_options: dict[str, Any], tmp_path: Path) -> None:
    shutil.copytree(tiny_options["model"], tmp_path, dirs_exist_ok=True)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [2, 60000]}')
    with LLM(**{**tiny_options, "model": str(tmp_path)}) as llm:
        (output,) = llm.generate("Hello", SamplingParams(temperature=0, max_tokens=4), use_tqdm=False)
    assert output.outputs[0].finish_reason in ("stop", "length")


def test_outputs_and_metrics_have_the_fields_that_scripts_read(llm: LLM) -> None:
    before = {metric.name: metric for metric in llm.get_metrics()}
    params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True, logprobs=1)
    (output,) = llm.generate("Hello", params, use_tqdm=False)
    for name in ("metrics", "lora_request", "encoder_prompt", "encoder_prompt_token_ids", "prompt_logprobs"):
        assert getattr(output, name) is None
    choice = output.outputs[0]
    assert choice.lora_request is None
    logprobs = [entry[token].logprob for entry, token in zip(choice.logprobs, choice.token_ids, strict=True)]
    assert choice.cumulative_logprob == pytest.approx(sum(logprobs))
    after = {metric.name: metric for metric in llm.get_metrics()}
    generated = [metrics["vllm:generation_tokens"].value for metrics in (before, after)]
    assert generated[1] == generated[0] + 5
    assert isinstance(generated[1], int)
    assert after["vllm:num_requests_running"].value == 0
    first_token = after["vllm:time_to_first_token_seconds"]
    assert first_token.count == before["vllm:time_to_first_token_seconds"].count + 1
    assert first_token.buckets["+Inf"] == first_token.count
    assert first_token.labels["engine"] == "0"


def test_prompts_that_are_no_text_are_named(llm: LLM) -> None:
    for prompt, message in (
        ("x\ud800", "character 1 is half of a surrogate pair"),
        ([2**40], "list of token ids"),
        (b"x", "not bytes"),
    ):
        with pytest.raises(ValueError, match=message):
            llm.generate(prompt, use_tqdm=False)  # type: ignore[arg-type]


def test_a_forked_process_must_make_its_own_engine(llm: LLM) -> None:
    def child(answer: Any) -> None:
        try:
            llm.generate("x", use_tqdm=False)
        except EngineDeadError as error:
            answer.send(str(error))

    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=child, args=(there,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # forking beside threads is what the test is about
        process.start()
    assert here.poll(60)
    assert "belongs to process" in here.recv()
    process.join()


def test_a_tokenizer_of_another_model_is_refused(tiny_options: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="49152 tokens and the model 100"):
        LLM(**tiny_options, hf_overrides={"vocab_size": 100})


def test_the_demo_samples_as_its_authors_recommend(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / gguf.name).symlink_to(gguf)
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path))
    with LLM("demo", kv_cache_memory_bytes=1 << 25, max_model_len=256) as llm:
        params = llm.get_default_sampling_params()
        assert (params.temperature, params.top_p) == (0.2, 0.9)
