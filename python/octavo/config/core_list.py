"""Lists of cores such as 0-3,8: as users write them, and as Linux does."""

from __future__ import annotations

import re

_MOST_CORES = 1 << 16
_LIST = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")


def core_numbers(text: str) -> list[int]:
    """The numbers of a list, in its order. Raises ValueError for anything else and for numbers said twice."""
    text = "".join(text.split())
    if not _LIST.fullmatch(text):
        raise ValueError("must be a list of cores such as 0-3,8")
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if high < low or high >= _MOST_CORES:
            raise ValueError(f"{part} is no range of cores")
        numbers.extend(range(low, high + 1))
    twice = sorted({number for number in numbers if numbers.count(number) > 1})
    if twice:
        raise ValueError(f"names core {twice[0]} twice")
    return numbers
