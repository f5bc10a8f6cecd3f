"""Lines for the person at the terminal; they go to standard error."""

from __future__ import annotations

import logging
import sys
import time


def say(text: str) -> None:
    """One line of progress or of what went wrong."""
    sys.stderr.write(f"octavo: {text}\n")
    sys.stderr.flush()


def start_log(level: str) -> None:
    """Log lines of `level` (debug, info, warning, error) and above, in the form of the Rust side's."""
    formatter = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)5s %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logger = logging.getLogger("octavo")
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False
