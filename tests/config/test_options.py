"""Options mean the same wherever they are set."""

from pathlib import Path

import pytest

from octavo.config import ConfigError, EngineConfig, ServeConfig, resolve
from octavo.config.command_line import Parser, parse_config
from octavo.config.option import options_of
from octavo.config.reference import reference_page

REPOSITORY = Path(__file__).resolve().parents[2]


def parse(text: str, monkeypatch: pytest.MonkeyPatch | None = None) -> ServeConfig:
    return parse_config(ServeConfig, Parser(prog="octavo serve"), text.split())


def test_a_source_wins_over_those_below_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "octavo.yaml"
    environ = {"OCTAVO_PORT": "1", "OCTAVO_MAX_NUM_SEQS": "11", "OCTAVO_BLOCK_SIZE": "111"}
    file.write_text("port: 2\nmax-num-seqs: 22\n")
    config = resolve(ServeConfig, {"port": 3}, file=file, environ=environ)
    assert (config.port, config.max_num_seqs, config.block_size, config.host) == (3, 22, 111, "127.0.0.1")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    parsed = parse(f"--config {file} --port 3")
    assert parsed == config


def test_octavos_variable_wins_over_the_well_known_one() -> None:
    environ = {"VLLM_API_KEY": "theirs"}
    assert resolve(ServeConfig, {}, environ=environ).api_key == ["theirs"]
    assert resolve(ServeConfig, {}, environ=environ | {"OCTAVO_API_KEY": "ours"}).api_key == ["ours"]
    assert resolve(EngineConfig, {}, environ={"VLLM_CPU_KVCACHE_SPACE": "2"}).cpu_kvcache_space == 2.0
    assert resolve(EngineConfig, {}, environ={"VLLM_LOGGING_LEVEL": "DEBUG"}).log_level == "debug"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4096", 4096),
        ("4K", 4096),
        ("25.6k", 25600),
        ("2m", 2_000_000),
        ("1M", 1 << 20),
        ("auto", -1),
        ("-1", -1),
    ],
)
def test_lengths_are_readable(text: str, value: int) -> None:
    assert parse(f"--max-model-len={text}").max_model_len == value


@pytest.mark.parametrize("text", ["1.5K", "4kb", "", "0", "-7", "many"])
def test_bad_lengths_name_the_option(text: str) -> None:
    with pytest.raises(ConfigError, match=r"argument: .*not"):
        resolve(EngineConfig, {"max_model_len": text}, environ={})


def test_dashes_and_underscores_are_the_same() -> None:
    assert parse("--max_num_seqs 7 --no_enable_prefix_caching") == parse(
        "--max-num-seqs 7 --no-enable-prefix-caching"
    )
    assert resolve(EngineConfig, {"max-num-seqs": 7}, environ={}).max_num_seqs == 7


def test_json_options_come_whole_or_in_parts() -> None:
    whole = parse('--hf-overrides {"rope_theta":500000.0,"a":{"b":1}}')
    assert parse("--hf-overrides.rope_theta 5e5 --hf-overrides.a.b=1") == whole


@pytest.mark.parametrize(
    ("given", "hint"),
    [("max_num_seq", "max_num_seqs"), ("prot", "port"), ("gpu_memory_utilisation", "gpu_memory_utilization")],
)
def test_unknown_keys_get_the_nearest_name(given: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"unknown option {given}; did you mean {hint}"):
        resolve(ServeConfig, {given: 1}, environ={})
    file = tmp_path / "c.yml"
    file.write_text(f"{given}: 1")
    with pytest.raises(ConfigError, match=f"c.yml: unknown option {given}; did you mean {hint}"):
        resolve(ServeConfig, {}, file=file, environ={})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--max-num-sqs 4", "unknown argument --max-num-sqs; did you mean --max-num-seqs?"),
        ("--port eighty", "port: must be an integer"),
        ("--dtype int3", "dtype: must be one of auto, half"),
        ("--no-enable-chunked-prefill", "enable_chunked_prefill cannot be off"),
        ("--tensor-parallel-size 2", "tensor_parallel_size cannot be '2': this release runs on one device"),
        ("--config /nonexistent.yaml", "/nonexistent.yaml: No such file"),
        ("--max-num-batched-tokens 8", "max_num_batched_tokens (8) must be at least max_num_seqs (256)"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse(arguments)
    assert stopped.value.code == 2
    first, hint = capsys.readouterr().err.splitlines()
    assert message in first
    assert hint == "Try: octavo serve --help"


def test_arguments_of_other_engines_pass_where_they_ask_for_nothing_else() -> None:
    given = {
        "tensor_parallel_size": 1,
        "trust_remote_code": True,
        "enforce_eager": True,
        "async_scheduling": False,
    }
    assert resolve(EngineConfig, given, environ={}) == resolve(
        EngineConfig, {"pipeline_depth": 1}, environ={}
    )


@pytest.mark.parametrize("switch", ["--enforce-eager", "--trust-remote-code", "--no-async-scheduling"])
def test_a_switch_does_not_swallow_the_model(switch: str) -> None:
    assert parse(f"{switch} some/model").model == "some/model"


def test_none_is_as_if_it_had_not_been_given() -> None:
    given = {"max_num_seqs": None, "served_model_name": None, "seed": None, "code_revision": None}
    assert resolve(EngineConfig, given, environ={"OCTAVO_SEED": "7"}) == EngineConfig(seed=7)


def test_secrets_stay_out_of_messages() -> None:
    with pytest.raises(ConfigError) as refused:
        resolve(ServeConfig, {"api_key": {"sk-1": "sk-2"}}, environ={})
    assert "sk-" not in str(refused.value)


def test_every_option_is_explained() -> None:
    for name, declared in options_of(ServeConfig).items():
        assert declared.help.endswith((".", ")")), name
        if declared.default is not None:
            assert declared.convert(declared.default, "default") == declared.default, name


def test_the_reference_page_is_current() -> None:
    page = (REPOSITORY / "docs" / "reference" / "options.md").read_text()
    assert page == reference_page(), "run: python -m octavo.config.reference > docs/reference/options.md"


@pytest.mark.parametrize(
    "text",
    [
        "org/m --served-model-name a b",
        "--model org/m --served-model-name a b",
        "--served-model-name a b --model org/m",
        "--served-model-name a b --port 8000 org/m",
        "--served-model-name a --served-model-name b --port 8000 org/m",
        "--served-model-name=a --served-model-name=b org/m",
        'org/m --served-model-name ["a","b"]',
    ],
)
def test_lists_are_spelt_in_many_ways(text: str) -> None:
    config = parse(text)
    assert (config.model, config.served_model_name) == ("org/m", ["a", "b"])


@pytest.mark.parametrize("flag", ["--api-key", "--served-model-name"])
def test_a_model_that_a_list_would_swallow_is_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse(f"{flag} secret org/m")
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert f"put MODEL first (octavo serve MODEL {flag} ...)" in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("auto", "auto"),
        ("NoBind", "none"),
        ("0-2,8", [0, 1, 2, 8]),
        (" 3 , 1-1", [3, 1]),
    ],
)
def test_cores_are_listed_as_in_linux(text: str, value: str | list[int]) -> None:
    assert resolve(EngineConfig, {}, environ={"VLLM_CPU_OMP_THREADS_BIND": text}).cpu_bind == value


@pytest.mark.parametrize("text", ["3-1", "0-", "all", "0-31|32-63", "1,1", "-1", "0-99999999999"])
def test_bad_lists_of_cores_say_what_one_is(text: str) -> None:
    with pytest.raises(ConfigError, match="cpu_bind: must be auto, none or a list of cores such as 0-3,8"):
        resolve(EngineConfig, {"cpu_bind": text}, environ={})
