"""Qwen2 and Qwen2.5."""

from octavo.models.decoder import CausalLM


class Qwen2(CausalLM):
    """Biases on queries, keys and values, none on the attention's output."""

    qkv_bias = True
    output_bias = False


MODEL = Qwen2
