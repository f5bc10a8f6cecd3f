"""Llama 1 to 3.3, SmolLM2, Yi, Mistral and others of the same shape."""

from octavo.models.decoder import CausalLM


class Llama(CausalLM):
    """The shared decoder as it is."""


MODEL = Llama
