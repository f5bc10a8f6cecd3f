"""Building blocks of models. A layer owns its weights, says which checkpoint tensors fill them, and calls one
op.
"""

from octavo.layers.attention import Attention
from octavo.layers.backend import Backend
from octavo.layers.embedding import Embedding, LMHead
from octavo.layers.linear import Linear, MergedLinear
from octavo.layers.norm import OffsetRMSNorm, RMSNorm
from octavo.layers.rotary import RopeConfig, RotaryEmbedding
from octavo.layers.weights import block_slots, checkpoint_slots, finish_loading, weight_bytes

__all__ = [
    "Attention",
    "Backend",
    "Embedding",
    "LMHead",
    "Linear",
    "MergedLinear",
    "OffsetRMSNorm",
    "RMSNorm",
    "RopeConfig",
    "RotaryEmbedding",
    "block_slots",
    "checkpoint_slots",
    "finish_loading",
    "weight_bytes",
]
