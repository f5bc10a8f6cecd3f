"""Token embeddings and the head that turns hidden states into logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from octavo.layers.weights import BlockSlot, LinearWeight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from octavo.layers.backend import Backend
    from octavo.ops import PackedLinear
    from octavo.quantization.blocks import Blocks


class Embedding(nn.Module):
    """Rows of a table, by token. A table of blocks, or one that a tied head shares, is packed for products
    and rows are taken out of that: there is one copy.
    """

    def __init__(self, backend: Backend, vocab_size: int, features: int) -> None:
        super().__init__()
        self._backend, self._shape = backend, (vocab_size, features)
        self._blocks: Blocks | None = None
        self._packed: PackedLinear | None = None
        self._table: Tensor | None = None

    def block_slots(self, name: str) -> Iterator[tuple[str, BlockSlot]]:
        """The table."""
        vocab_size, features = self._shape
        float_bytes = vocab_size * features * self._backend.dtype.itemsize
        yield f"{name}.weight", BlockSlot(self._shape, float_bytes, self._take)

    def slots(self, name: str) -> Iterator[tuple[str, Tensor]]:
        """The table, unless it has come as blocks."""
        if self._blocks is None:
            yield f"{name}.weight", self.table

    def process_after_loading(self) -> None:
        """Packs a table of blocks."""
        if self._blocks is not None:
            self._packed = self._backend.ops.pack_quantized_linear([self._blocks], None)
            self._blocks = None

    def weight_bytes(self) -> int:
        """Bytes of the table."""
        if self._packed is not None:
            return self._packed.size_bytes
        return self._shape[0] * self._shape[1] * self._backend.dtype.itemsize

    @property
    def table(self) -> Tensor:
        """The table of floats [vocab_size, features]."""
        if self._table is None:
            self._table = self._backend.empty(*self._shape)
        return self._table

    def as_head(self) -> Callable[[Tensor], Tensor]:
        """The product of a head that is tied to this table, once loaded."""
        if self._packed is None:
            self._packed = self._backend.ops.pack_linear(self.table, None)
            self._table = None
        return self._packed

    def forward(self, tokens: Tensor) -> Tensor:
        """[tokens] -> [tokens, features]."""
        if self._packed is not None:
            return self._packed.rows(tokens, self._backend.dtype)
        return self._backend.ops.embedding(tokens, self.table)

    def _take(self, blocks: Blocks) -> None:
        self._blocks = blocks


class LMHead(nn.Module):
    """Hidden states -> float32 logits. Tied heads share the embedding's table and take nothing from the
    checkpoint.
    """

    def __init__(self, backend: Backend, vocab_size: int, features: int, tied: Embedding | None) -> None:
        super().__init__()
        # A bound method: the embedding must not become a module of the head's.
        self._tied_head = None if tied is None else tied.as_head
        self.weight = LinearWeight(backend, {"": vocab_size}, features, bias=False) if tied is None else None

    def block_slots(self, name: str) -> Iterator[tuple[str, BlockSlot]]:
        """The weight, unless tied."""
        if self.weight is not None:
            yield from self.weight.block_slots(name)

    def slots(self, name: str) -> Iterator[tuple[str, Tensor]]:
        """The weight, unless tied or come as blocks."""
        if self.weight is not None:
            yield from self.weight.slots(name)

    def process_after_loading(self) -> None:
        """Packs the weight and binds the op. The embedding, which comes first in a model, is ready."""
        if self.weight is not None:
            self.weight.process_after_loading()
            self._apply_head = self.weight.apply
        elif self._tied_head is not None:
            self._apply_head = self._tied_head()

    def weight_bytes(self) -> int:
        """0 when tied."""
        return self.weight.weight_bytes() if self.weight is not None else 0

    def forward(self, hidden: Tensor) -> Tensor:
        """[rows, features] -> float32 [rows, vocab]."""
        return self._apply_head(hidden).float()
