"""`octavo chat` and `octavo complete` against a real server."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from served import Served

from octavo.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def url(tiny_options: dict[str, Any]) -> Iterator[str]:
    defaults = '{"temperature": 0, "max_tokens": 8}'
    with Served(
        tiny_options, **{"override-generation-config": defaults, "served-model-name": "tiny", "api-key": "k"}
    ) as server:
        yield server.api().address


@pytest.fixture
def ask(url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command with what a person types; returns status, what it printed and what it said."""

    def run(command: str, *arguments: str, typed: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        status = main([command, "--url", url, "--api-key", "k", *arguments])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


def test_a_quick_question_is_answered_with_figures(ask: Any) -> None:
    status, answer, figures = ask("chat", "-q", "Hello", "--stats")
    assert status == 0
    assert answer.strip()
    assert "+ 8 tokens, first after" in figures
    assert ask("chat", "--quick", "Hello")[1] == answer, "greedy answers are the same every time"


def test_a_conversation_is_remembered_and_forgotten(ask: Any) -> None:
    status, printed, _ = ask("chat", typed="Hello\nHello\n/clear\nHello\n/exit\nnever asked\n")
    assert status == 0
    first, second, third = printed.splitlines()
    assert first == third
    assert second != first


def test_instructions_change_the_answer(ask: Any) -> None:
    plain = ask("chat", typed="Hello\n")[1]
    instructed = ask("chat", "--system-prompt", "Be brief.", typed="Hello\n")[1]
    assert ask("chat", typed="/system Be brief.\nHello\n")[1] == instructed
    assert instructed != plain


def test_a_backslash_continues_the_line(ask: Any) -> None:
    typed = ask("chat", typed="one\\\ntwo\n")[1]
    assert typed == ask("chat", "-q", "one\ntwo")[1]


def test_unknown_commands_show_the_list(ask: Any) -> None:
    _, printed, said = ask("chat", typed="/claer\n")
    assert "no command /claer" in said
    assert "/clear" in printed


def test_text_is_continued(ask: Any) -> None:
    status, printed, _ = ask("complete", "-q", "Once upon", "--max-tokens", "4")
    assert status == 0
    assert printed.startswith("Once upon")
    assert len(printed) > len("Once upon\n")


def test_refusals_are_one_line(ask: Any) -> None:
    status, _, said = ask("chat", "--model-name", "other", "-q", "Hello")
    assert status == 1
    assert "other" in said
    assert "tiny" in said
    status, _, said = ask("chat", "--api-key", "wrong", "-q", "Hello")
    assert (status, said) == (1, "octavo: the server asks for a key: pass --api-key\n")


def test_an_error_starts_on_its_own_line(ask: Any) -> None:
    status, printed, said = ask("complete", "--max-tokens", "-1", "-q", "Once upon")
    assert status == 1
    assert printed == "Once upon\n"
    assert said.startswith("octavo: ")


@pytest.mark.parametrize("broken", ["cache", "cache/history"])
def test_a_history_that_cannot_be_kept_is_said(url: str, tmp_path: Path, broken: str) -> None:
    cache = tmp_path / "cache"
    if broken == "cache":
        cache.touch()
    else:
        (tmp_path / broken).mkdir(parents=True)
    terminal, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "octavo", "chat", "--url", url, "--api-key", "k"],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OCTAVO_CACHE": str(cache), "TERM": "dumb"},
    ) as chat:
        os.write(terminal, b"/exit\n")
        _, said = chat.communicate(timeout=60)
    os.close(terminal)
    os.close(theirs)
    assert chat.returncode == 0, said
    assert "Traceback" not in said
    assert f"cannot keep what was typed in {cache / 'history'}" in said
