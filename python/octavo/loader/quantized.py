"""Where quantised weights come from: the checkpoint itself, or floats that are rounded as they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.loader.checkpoint import BlockSource

if TYPE_CHECKING:
    from octavo.loader.checkpoint import Checkpoint


def block_source(checkpoint: Checkpoint) -> BlockSource | None:
    """The blocks that a checkpoint holds; None where it holds floats."""
    return checkpoint if isinstance(checkpoint, BlockSource) else None
