"""What a checkpoint is, and how a model is filled from one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from torch import Tensor

    from octavo.layers.weights import BlockSlot
    from octavo.quantization.blocks import Blocks

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

    def spare(self, name: str) -> bool:
        """Whether a tensor may be left over: the model may have no use for it."""


@runtime_checkable
class BlockSource(Protocol):
    """What gives weights as quantised blocks: a checkpoint that holds them, or something that makes them."""

    method: str
    """How the weights were quantised, such as "gguf"."""

    def block_bytes(self, name: str) -> int | None:
        """Bytes of what `read_blocks` gives; None for a tensor that is to be read as floats."""

    def read_blocks(self, name: str) -> Blocks:
        """One weight."""


def fill_blocks(
    places: Mapping[str, BlockSlot], source: BlockSource, checkpoint: Checkpoint, progress: Progress
) -> set[str]:
    """Gives a model the weights that can stay quantised. Returns their names; the rest is for `fill`, weights
    of another shape too: it reports them.
    """
    shapes = checkpoint.shapes()
    sizes = {name: source.block_bytes(name) for name in places if shapes.get(name) == places[name].shape}
    wanted = {name: size for name, size in sizes.items() if size is not None}
    done, total = 0, sum(wanted.values())
    for name, size in wanted.items():
        places[name].take(source.read_blocks(name))
        done += size
        progress("Loading quantised weights", done, total)
    return set(wanted)


def fill(
    slots: Mapping[str, Tensor], checkpoint: Checkpoint, progress: Progress, filled: Collection[str] = ()
) -> None:
    """Copies a checkpoint's tensors into a model's slots. Those in `filled` have been taken already.

    Raises `CheckpointError` that lists every tensor that is missing, unexpected or of another shape.
    """
    shapes = {name: shape for name, shape in checkpoint.shapes().items() if name not in filled}
    _check(slots, shapes, checkpoint)
    total = sum(slot.nbytes for slot in slots.values())
    done = 0
    progress("Loading weights", 0, total)
    for name, slot in slots.items():
        slot.copy_(checkpoint.read(name))
        done += slot.nbytes
        progress("Loading weights", done, total)


def _check(
    slots: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], checkpoint: Checkpoint
) -> None:
    missing = [name for name in slots if name not in shapes]
    tied = "lm_head.weight" not in slots
    unexpected = [
        name
        for name in shapes
        if name not in slots
        and not name.endswith(_IGNORED_SUFFIXES)
        and not (tied and name == "lm_head.weight")
        and not checkpoint.spare(name)
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
            f"the tensors in {checkpoint.path} are not those of the model that its config describes; "
            + "; ".join(problems)
        )


def _list(names: list[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
