"""`octavo pull`: fetch a model into the local cache."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from octavo.cli.console import say
from octavo.config import EngineConfig
from octavo.config.command_line import Parser
from octavo.config.resolve import resolve
from octavo.engine.errors import ModelError
from octavo.engine.source import find_model

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:
    """Fetch one model and print where it is."""
    parser = Parser(prog="octavo pull", description="Fetch a model into the local cache.")
    parser.add_argument("model", metavar="MODEL", nargs="?", help="demo (the default) or a Hugging Face id")
    parser.add_argument("--revision", help="branch, tag or commit on the hub")
    parser.add_argument("--hf-token", help="token for gated models (also HF_TOKEN)")
    parser.add_argument("--download-dir", help="where models from the hub are kept")
    given = {key: value for key, value in vars(parser.parse_strict(arguments)).items() if value is not None}
    try:
        path = find_model(resolve(EngineConfig, given), say)
    except ModelError as error:
        say(str(error))
        return 1
    sys.stdout.write(f"{path}\n")
    return 0
