"""`octavo chat`: talk to a running server."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from octavo.cli import repl
from octavo.cli.api import ApiError
from octavo.cli.console import say

if TYPE_CHECKING:
    from collections.abc import Sequence

_HELP = """\
/clear        forget the conversation
/system TEXT  give instructions (and forget the conversation); without TEXT, drop them
/help         this list
/exit         leave (also Ctrl-D)
A backslash at the end of a line continues it on the next. Ctrl-C stops an answer.
"""

_Message = dict[str, str]


def run(words: Sequence[str]) -> int:
    """Talk until end of file, or ask once with --quick."""
    parser = repl.parser("chat", "Talk to a running server.")
    parser.add_argument("--system-prompt", metavar="TEXT", help="instructions for the model")
    arguments = parser.parse_strict(words)
    try:
        session = repl.open_session(arguments)
        conversation = _fresh(arguments.system_prompt)
        if arguments.quick is not None:
            _ask(session, conversation, arguments.quick)
            return 0
    except ApiError as error:
        say(str(error))
        return 1
    if sys.stdin.isatty():
        sys.stdout.write(f"{session.model} at {session.api.address}. /help lists commands, Ctrl-D leaves.\n")
    for entry in repl.read_entries("> "):
        if entry.startswith("/"):
            replaced = _command(entry, conversation)
            if replaced is None:
                return 0
            conversation = replaced
            continue
        try:
            _ask(session, conversation, entry)
        except ApiError as error:
            say(str(error))
    return 0


def _fresh(system_prompt: str | None) -> list[_Message]:
    return [{"role": "system", "content": system_prompt}] if system_prompt else []


def _command(entry: str, conversation: list[_Message]) -> list[_Message] | None:
    """The conversation after a command; None to leave."""
    name, _, rest = entry.partition(" ")
    if name in ("/exit", "/quit"):
        return None
    if name == "/clear":
        return [message for message in conversation if message["role"] == "system"]
    if name == "/system":
        return _fresh(rest.strip())
    if name != "/help":
        say(f"no command {name}")
    sys.stdout.write(_HELP)
    return conversation


def _ask(session: repl.Session, conversation: list[_Message], text: str) -> None:
    """Put one question, print the answer and remember both; neither is kept if the server refuses."""
    asked = [*conversation, {"role": "user", "content": text}]
    chunks = session.api.stream("/chat/completions", {"model": session.model, "messages": asked})
    answer = repl.print_answer(session, repl.choices(chunks, "chat"))
    conversation[:] = [*asked, {"role": "assistant", "content": answer}]
