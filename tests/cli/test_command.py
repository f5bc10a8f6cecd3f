"""The command itself: fast, and readable when used wrongly."""

import subprocess
import sys
import time

import pytest

from octavo.cli import main


def seconds(*command: str) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def test_help_answers_in_a_blink() -> None:
    assert min(seconds(sys.executable, "-m", "octavo", "--help") for _ in range(3)) < 0.3


def test_import_is_light() -> None:
    code = (
        "import sys, octavo, octavo.cli, octavo.config;"
        "assert not {'torch', 'numpy', 'transformers', 'yaml'} & set(sys.modules)"
    )
    assert min(seconds(sys.executable, "-c", code) for _ in range(3)) < 0.3


def test_the_engine_classes_load_without_torch() -> None:
    code = "import sys; from octavo import LLM, Engine, SamplingParams; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("command", ["serve", "chat", "complete", "pull", "collect-env"])
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: octavo {command}")


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    name, number = capsys.readouterr().out.split()
    assert name == "octavo"
    assert number.count(".") == 2


def test_a_misspelt_command_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serv"]) == 2
    assert "unknown command serv; did you mean serve?" in capsys.readouterr().err


def test_collect_env_works_without_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; from octavo.cli import main; main(['collect-env'])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    facts = dict(line.split(":", 1) for line in done.stdout.splitlines())
    assert {"python", "torch", "processor", "memory", "devices"} <= facts.keys()


def test_chat_without_a_server_says_how_to_start_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "--url", "http://127.0.0.1:1/v1", "-q", "hello"]) == 1
    assert "start a server with: octavo serve" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["chat", "complete"])
def test_help_does_not_show_the_key(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-eyes")
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert "sk-not-for-eyes" not in capsys.readouterr().out
