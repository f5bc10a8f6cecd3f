"""Reading models from disk: checkpoints say what model they hold and yield tensors by Hugging Face names."""

from octavo.loader.checkpoint import BlockSource, Checkpoint, CheckpointError, Progress, fill, fill_blocks
from octavo.loader.dummy import fill_dummy
from octavo.loader.find import open_checkpoint
from octavo.loader.quantized import ONLINE, block_source

__all__ = [
    "ONLINE",
    "BlockSource",
    "Checkpoint",
    "CheckpointError",
    "Progress",
    "block_source",
    "fill",
    "fill_blocks",
    "fill_dummy",
    "open_checkpoint",
]
