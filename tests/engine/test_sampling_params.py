"""Parameters are checked where they are made."""

import pytest

from octavo import SamplingParams


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n": 0}, "n must be an integer from 1 to 16384, not 0"),
        ({"n": 2, "temperature": 0}, "n must be 1 with temperature 0"),
        ({"temperature": -0.1}, "temperature must be a number at least 0"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"top_p": 0}, "top_p must be a number above 0 and at most 1, not 0"),
        ({"top_k": -2}, "top_k"),
        ({"top_k": 1.5}, "top_k"),
        ({"min_p": 1.1}, "min_p"),
        ({"cache_ttl_s": -1}, "cache_ttl_s"),
        ({"cache_ttl_s": "5m"}, "cache_ttl_s"),
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"frequency_penalty": -2.1}, "frequency_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 4, "min_tokens": 5}, "min_tokens must be an integer from 0 to 4, not 5"),
        ({"stop": [""]}, "stop must be non-empty strings"),
        ({"stop": "x", "detokenize": False}, "stop strings need detokenize"),
        ({"stop_token_ids": [-1]}, "stop_token_ids"),
        ({"logprobs": -2}, "logprobs"),
        ({"seed": 2**63}, "seed"),
        ({"bad_words": ["x"]}, "bad_words is not supported"),
        ({"structured_outputs": object()}, "structured_outputs is not supported"),
    ],
)
def test_bad_values_name_the_field(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SamplingParams(**given)


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(TypeError, match="no field 'temprature'; did you mean temperature"):
        SamplingParams(temprature=1)


def test_values_are_brought_into_one_form() -> None:
    params = SamplingParams(
        stop="x", stop_token_ids=[3, 3, 2], seed=-1, top_k=-1, logprobs=True, logit_bias={"5": 1000}
    )
    assert (params.stop, params.stop_token_ids, params.seed, params.top_k) == (["x"], [3, 2], None, 0)
    assert (params.logprobs, params.logit_bias) == (1, {5: 100.0})


def test_fields_that_ask_for_nothing_pass() -> None:
    assert SamplingParams(bad_words=None, best_of=1, logits_processors=[]) == SamplingParams()


def test_a_clone_is_independent() -> None:
    params = SamplingParams(stop=["a"])
    copy = params.clone()
    copy.stop.append("b")
    assert params.stop == ["a"]


def test_what_cannot_be_a_list_or_a_map_is_named() -> None:
    with pytest.raises(ValueError, match="stop must be a list"):
        SamplingParams(stop=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="logit_bias must map"):
        SamplingParams(logit_bias={"x": 1})  # type: ignore[dict-item]
