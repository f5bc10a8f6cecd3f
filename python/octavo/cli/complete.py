"""`octavo complete`: let a running server continue text."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from octavo.cli import repl
from octavo.cli.api import ApiError
from octavo.cli.console import say

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(words: Sequence[str]) -> int:
    """Continue each entry until end of file, or once with --quick."""
    parser = repl.parser("complete", "Let a running server continue text.")
    parser.add_argument("--max-tokens", type=int, default=128, help="most tokens of a continuation")
    arguments = parser.parse_strict(words)
    try:
        session = repl.open_session(arguments)
        if arguments.quick is not None:
            _complete(session, arguments.quick, arguments.max_tokens)
            return 0
    except ApiError as error:
        say(str(error))
        return 1
    if sys.stdin.isatty():
        sys.stdout.write(f"{session.model} at {session.api.address}. Type text to continue; Ctrl-D leaves.\n")
    for entry in repl.read_entries("> "):
        try:
            _complete(session, entry, arguments.max_tokens)
        except ApiError as error:
            say(str(error))
    return 0


def _complete(session: repl.Session, prompt: str, max_tokens: int) -> None:
    body = {"model": session.model, "prompt": prompt, "max_tokens": max_tokens}
    chunks = session.api.stream("/completions", body)
    repl.print_answer(session, repl.choices(chunks, "text"), lead=prompt)
