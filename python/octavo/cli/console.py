"""Lines for the person at the terminal; they go to standard error."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """One line of progress or of what went wrong."""
    sys.stderr.write(f"octavo: {text}\n")
    sys.stderr.flush()
