"""The examples run as they are."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from served import Served

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, argument: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), argument]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_offline_continues_prompts(gguf: Path) -> None:
    lines = run("offline.py", str(gguf)).splitlines()
    assert len(lines) == 3
    assert "Paris" in lines[0]


def test_chat_remembers(gguf: Path) -> None:
    printed = run("chat.py", str(gguf))
    assert "Paris" in printed
    assert printed.count("tokens of the prompt were cached") == 2


def test_streams_come_together_and_can_be_left(gguf: Path) -> None:
    lines = run("async_stream.py", str(gguf)).splitlines()
    counts = [sum(line.startswith(prompt) for line in lines) for prompt in ("Once upon a time", "My name is")]
    assert counts[0] > 10
    assert counts[1] <= 3


def test_the_official_client_streams(demo_server: Served) -> None:
    assert len(run("openai_client.py", demo_server.url).split()) > 5


def test_a_script_at_a_terminal_says_what_it_loads(gguf: Path) -> None:
    terminal, theirs = pty.openpty()
    command = [sys.executable, "-c", f"import octavo; octavo.LLM({str(gguf)!r}).close()"]
    subprocess.run(command, stderr=theirs, timeout=200, check=True)
    os.close(theirs)
    shown = os.read(terminal, 65536).decode()
    os.close(terminal)
    assert shown == f"octavo: loading {gguf}\r\n"
