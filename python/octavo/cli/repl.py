"""What `octavo chat` and `octavo complete` share: arguments, input lines and printed answers."""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.cli.api import Api, ApiError
from octavo.cli.console import say
from octavo.config.command_line import Parser
from octavo.engine.demo import models_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HISTORY_LENGTH = 1000


@dataclass(frozen=True)
class Session:
    """A server and the model to talk to there."""

    api: Api
    model: str
    stats: bool


def parser(command: str, description: str) -> Parser:
    """Arguments of both commands."""
    arguments = Parser(
        prog=f"octavo {command}",
        description=description,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    arguments.add_argument("--url", default="http://localhost:8000/v1", help="the server's address")
    arguments.add_argument("--model-name", help="model to ask for; the first that the server lists")
    arguments.add_argument(
        "--api-key", default=None, help="key that the server wants (also OPENAI_API_KEY)", metavar="KEY"
    )
    arguments.add_argument("-q", "--quick", metavar="TEXT", help="ask this once and leave")
    arguments.add_argument("--stats", action="store_true", help="show tokens per second after each answer")
    return arguments


def open_session(arguments: argparse.Namespace) -> Session:
    """Ask the server what it has. Raises ApiError."""
    api = Api(arguments.url, arguments.api_key or os.environ.get("OPENAI_API_KEY"))
    model = arguments.model_name or api.models()[0]
    return Session(api, model, arguments.stats)


def read_entries(prompt: str) -> Iterator[str]:
    """What the person types, until end of file. A backslash at the end of a line continues it.

    ^C clears the line. Entries are kept for the next time where the terminal allows editing.
    """
    with _History():
        while True:
            try:
                entry = _read_entry(prompt)
            except KeyboardInterrupt:
                sys.stdout.write("\n")
                continue
            except EOFError:
                if sys.stdin.isatty():
                    sys.stdout.write("\n")
                return
            if entry.strip():
                yield entry


def _read_entry(prompt: str) -> str:
    shown = prompt if sys.stdin.isatty() else ""
    lines = [input(shown)]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(input("... " if shown else ""))
    return "\n".join(lines)


class _History:
    """Line editing with a history file, for terminals."""

    def __enter__(self) -> None:
        self._readline = None
        if not sys.stdin.isatty():
            return
        try:
            import readline  # noqa: PLC0415  (some builds of Python lack it)
        except ImportError:
            return
        self._readline = readline
        self._file = models_folder().parent / "history"
        try:
            if self._file.exists():
                readline.read_history_file(self._file)
        except OSError as error:
            say(f"cannot read {self._file}: {error.strerror or error}")
        readline.set_history_length(_HISTORY_LENGTH)

    def __exit__(self, *_: object) -> None:
        if self._readline is None:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._readline.write_history_file(self._file)
        except OSError as error:
            say(f"cannot keep what was typed in {self._file}: {error.strerror or error}")


def print_answer(session: Session, chunks: Iterable[tuple[str, dict[str, Any]]], lead: str = "") -> str:
    """Print `lead` and text as it comes; returns the text. ^C stops the answer and keeps what has come.

    Raises ApiError, with what was printed on a line of its own.
    """
    started = time.monotonic()
    first = None
    parts: list[str] = []
    usage: dict[str, Any] = {}
    sys.stdout.write(lead)
    try:
        for text, chunk in chunks:
            usage = chunk.get("usage") or usage
            if text:
                first = first or time.monotonic()
                parts.append(text)
                sys.stdout.write(text)
                sys.stdout.flush()
        sys.stdout.write("\n")
    except KeyboardInterrupt:
        sys.stdout.write(" [stopped]\n")
    except ApiError:
        if lead or parts:
            sys.stdout.write("\n")
            sys.stdout.flush()
        raise
    if session.stats and first is not None and usage:
        _print_stats(usage, started, first)
    return "".join(parts)


def _print_stats(usage: dict[str, Any], started: float, first: float) -> None:
    tokens = int(usage.get("completion_tokens", 0))
    decode_s = time.monotonic() - first
    rate = f"{(tokens - 1) / decode_s:.1f} tokens/s" if tokens > 1 and decode_s > 0 else "one token"
    prompt = usage.get("prompt_tokens", 0)
    sys.stderr.write(f"[{prompt} + {tokens} tokens, first after {first - started:.2f} s, then {rate}]\n")


def choices(chunks: Iterable[dict[str, Any]], kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The new text of each chunk, with the chunk; `kind` is chat or text."""
    for chunk in chunks:
        text = ""
        for choice in chunk.get("choices") or []:
            text += (choice["delta"].get("content") if kind == "chat" else choice["text"]) or ""
        yield text, chunk
