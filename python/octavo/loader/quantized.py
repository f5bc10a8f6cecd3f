"""Where quantised weights come from: the checkpoint itself, or floats that are rounded as they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.loader.checkpoint import BlockSource, CheckpointError
from octavo.quantization.blocks import block_bytes
from octavo.quantization.gguf import FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from octavo.loader.checkpoint import Checkpoint
    from octavo.quantization.blocks import Blocks

    Quantize = Callable[[Tensor, str], Blocks]

ONLINE = {"int8": ("Q8_0", "Q8_0"), "int4": ("Q4_1", "Q8_0")}
"""Ways to round floats -> formats of layers, and of embeddings and heads, which every token goes through."""

_OUTER = ("embed_tokens.weight", "lm_head.weight")


def block_source(checkpoint: Checkpoint, quantization: str | None, quantize: Quantize) -> BlockSource | None:
    """What gives a checkpoint's weights as blocks; None where they are floats and stay so.

    `quantization`: one of `ONLINE`, the method that the checkpoint must have, or None. Raises
    `CheckpointError` where it has another.
    """
    own = checkpoint if isinstance(checkpoint, BlockSource) else None
    if quantization in ONLINE:
        return _Rounded(checkpoint, own, ONLINE[quantization], quantize)
    method = None if own is None else own.method
    if quantization not in (None, method):
        raise CheckpointError(
            f"quantization is {quantization}, but the weights of {checkpoint.path} are {method or 'floats'}"
        )
    return own


class _Rounded:
    """Rounds matrices of whole blocks as they are read; blocks that the checkpoint has stay as they are."""

    def __init__(
        self, checkpoint: Checkpoint, own: BlockSource | None, formats: tuple[str, str], quantize: Quantize
    ) -> None:
        self._checkpoint, self._own, self._formats, self._quantize = checkpoint, own, formats, quantize
        self.method = "rounded"

    def block_bytes(self, name: str) -> int | None:
        """Of the checkpoint's own blocks, else of the floats' once they are rounded."""
        own = self._own.block_bytes(name) if self._own is not None else None
        shape = self._checkpoint.shapes().get(name, ())
        layout = self._format(name)
        if own is not None or len(shape) != 2 or shape[1] % FORMATS[layout].block_size:
            return own
        return block_bytes(layout, *shape)

    def read_blocks(self, name: str) -> Blocks:
        """One weight."""
        if self._own is not None and self._own.block_bytes(name) is not None:
            return self._own.read_blocks(name)
        return self._quantize(self._checkpoint.read(name), self._format(name))

    def _format(self, name: str) -> str:
        return self._formats[name.endswith(_OUTER)]
