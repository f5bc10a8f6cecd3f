"""Model families. They see tokens, positions, attention metadata and KV caches: never requests, options or
frames.
"""

from octavo.models.config import ModelConfig, UnsupportedModelError
from octavo.models.registry import create_model, supported_architectures

__all__ = ["ModelConfig", "UnsupportedModelError", "create_model", "supported_architectures"]
