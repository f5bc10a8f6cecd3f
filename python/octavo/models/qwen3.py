"""Qwen3, dense."""

from octavo.models.decoder import CausalLM


class Qwen3(CausalLM):
    """Query and key heads are normalised before rotation."""

    qk_norm = True


MODEL = Qwen3
