"""What a checkpoint is, and how a model is filled from one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

Progress = Callable[[str, int, int], None]
"""Called with what is being done, bytes done and bytes in all."""

_IGNORED_SUFFIXES = (".rotary_emb.inv_freq", ".masked_bias")
"""Tensors that older checkpoints carry and nobody needs."""

_SHOWN = 8


class CheckpointError(ValueError):
    """A model's files are missing, damaged or not those of the model that its config describes."""


class Checkpoint(Protocol):
    """A model on disk."""

    path: str
    config: dict[str, Any]
    """In the terms of config.json."""

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Every tensor's shape by its Hugging Face name."""

    def read(self, name: str) -> Tensor:
        """One tensor, on the CPU, of whatever float type."""


def fill(slots: Mapping[str, Tensor], checkpoint: Checkpoint, progress: Progress) -> None:
    """Copies a checkpoint's tensors into a model's slots.

    Raises `CheckpointError` that lists every tensor that is missing, unexpected or of another shape.
    """
    shapes = checkpoint.shapes()
    _check(slots, shapes, checkpoint.path)
    total = sum(slot.nbytes for slot in slots.values())
    done = 0
    progress("Loading weights", 0, total)
    for name, slot in slots.items():
        slot.copy_(checkpoint.read(name))
        done += slot.nbytes
        progress("Loading weights", done, total)


def _check(slots: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], path: str) -> None:
    missing = [name for name in slots if name not in shapes]
    tied = "lm_head.weight" not in slots
    unexpected = [
        name
        for name in shapes
        if name not in slots
        and not name.endswith(_IGNORED_SUFFIXES)
        and not (tied and name == "lm_head.weight")
    ]
    mismatched = [
        f"{name} is {list(shapes[name])}, the model needs {list(slot.shape)}"
        for name, slot in slots.items()
        if name in shapes and tuple(shapes[name]) != tuple(slot.shape)
    ]
    problems = [
        f"{what}: {_list(names)}"
        for what, names in (
            ("missing", missing),
            ("unexpected", unexpected),
            ("of another shape", mismatched),
        )
        if names
    ]
    if problems:
        raise CheckpointError(
            f"the tensors in {path} are not those of the model that its config describes; "
            + "; ".join(problems)
        )


def _list(names: list[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
