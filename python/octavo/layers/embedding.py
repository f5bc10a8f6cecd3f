"""Token embeddings and the head that turns hidden states into logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from octavo.layers.weights import DenseWeight

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.layers.backend import Backend


class Embedding(nn.Module):
    """Rows of a table, by token."""

    def __init__(self, backend: Backend, vocab_size: int, features: int) -> None:
        super().__init__()
        self._op = backend.ops.embedding
        self.table = backend.empty(vocab_size, features)

    def slots(self, name: str) -> Iterator[tuple[str, Tensor]]:
        """The table."""
        yield f"{name}.weight", self.table

    def process_after_loading(self) -> None:
        """Nothing to do: the table is used as it is."""

    def weight_bytes(self) -> int:
        """Bytes of the table."""
        return self.table.nbytes

    def forward(self, tokens: Tensor) -> Tensor:
        """[tokens] -> [tokens, features]."""
        return self._op(tokens, self.table)


class LMHead(nn.Module):
    """Hidden states -> float32 logits. Tied heads share the embedding's table and take nothing from the
    checkpoint.
    """

    def __init__(self, backend: Backend, vocab_size: int, features: int, tied: Embedding | None) -> None:
        super().__init__()
        self._ops = backend.ops
        self._tied_table = tied.table if tied is not None else None
        self.weight = None if tied is not None else DenseWeight(backend, vocab_size, features, bias=False)
        self._rows = vocab_size

    def slots(self, name: str) -> Iterator[tuple[str, Tensor]]:
        """The weight, unless tied."""
        if self.weight is not None:
            yield from self.weight.slots(name, 0, self._rows)

    def process_after_loading(self) -> None:
        """Packs the weight and binds the op."""
        if self.weight is not None:
            self.weight.process_after_loading()
            self._apply_head = self.weight.apply
        elif self._tied_table is not None:
            self._apply_head = self._ops.pack_linear(self._tied_table, None)

    def weight_bytes(self) -> int:
        """0 when tied."""
        return self.weight.weight_bytes() if self.weight is not None else 0

    def forward(self, hidden: Tensor) -> Tensor:
        """[rows, features] -> float32 [rows, vocab]."""
        return self._apply_head(hidden).float()
