"""The `octavo` command."""

from __future__ import annotations

import sys
from importlib import import_module

from octavo.config.option import nearest

# Command -> (its module, one line of help).
_COMMANDS = {
    "serve": ("octavo.cli.serve", "serve a model over HTTP (OpenAI-compatible)"),
    "chat": ("octavo.cli.chat", "talk to a running server"),
    "complete": ("octavo.cli.complete", "let a running server continue text"),
    "pull": ("octavo.cli.pull", "fetch a model into the local cache"),
    "collect-env": ("octavo.cli.collect_env", "print versions, processor and devices, for bug reports"),
}


def _usage() -> str:
    commands = "\n".join(f"  {name:<12} {text}" for name, (_, text) in _COMMANDS.items())
    return (
        "usage: octavo COMMAND ...\n\n"
        "Serve large language models from paged KV memory.\n\n"
        f"commands:\n{commands}\n\n"
        "  octavo COMMAND --help shows a command's options; octavo --version the version.\n\n"
        "Start here: octavo serve   and, in another terminal: octavo chat\n"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns its exit status (0 good, 1 failed, 2 wrong usage, 130 interrupted)."""
    words = sys.argv[1:] if arguments is None else arguments
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(_usage())
        return 0 if words else 2
    if words[0] in ("-v", "--version", "version"):
        from octavo import __version__  # noqa: PLC0415  (reads the installed version)

        sys.stdout.write(f"octavo {__version__}\n")
        return 0
    if words[0] not in _COMMANDS:
        hint = nearest(words[0], list(_COMMANDS))
        sys.stderr.write(f"octavo: unknown command {words[0]}{hint}\nTry: octavo --help\n")
        return 2
    command = import_module(_COMMANDS[words[0]][0])
    try:
        status: int = command.run(words[1:])
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    return status
