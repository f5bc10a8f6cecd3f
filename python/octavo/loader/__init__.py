"""Reading models from disk: checkpoints say what model they hold and yield tensors by Hugging Face names."""

from octavo.loader.checkpoint import Checkpoint, CheckpointError, Progress, fill
from octavo.loader.dummy import fill_dummy
from octavo.loader.find import open_checkpoint

__all__ = ["Checkpoint", "CheckpointError", "Progress", "fill", "fill_dummy", "open_checkpoint"]
