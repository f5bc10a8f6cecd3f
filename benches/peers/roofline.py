"""The least time that a machine needs for a scenario: bytes over bandwidth, operations over peak.

A step reads the weights once and the KV of every sequence; it multiplies each weight of a matrix with each
token. The time of a step is at least the larger of the two. Activations, KV writes, sampling and everything
around the model are left out: this is a floor, not a forecast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from .scenarios import Scenario


@dataclass(frozen=True)
class Model:
    """What a step costs. Bytes are those of the weights as stored."""

    weight_bytes: int
    # Values in matrices; the output layer, which only sampled tokens need, is apart.
    matrix_values: int
    head_values: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    kv_value_bytes: int

    @classmethod
    def of(cls, gguf: Path, kv_value_bytes: int) -> Model:
        """Read a GGUF file."""
        from gguf import GGUFReader  # noqa: PLC0415

        reader = GGUFReader(gguf)
        value = {name: field.contents() for name, field in reader.fields.items() if name.startswith("llama.")}
        tensors = {tensor.name: tensor for tensor in reader.tensors}
        head = tensors.get("output.weight", tensors["token_embd.weight"])
        layers = [
            tensor for name, tensor in tensors.items() if name.startswith("blk.") and len(tensor.shape) == 2
        ]
        heads = value["llama.attention.head_count"]
        return cls(
            weight_bytes=int(head.n_bytes + sum(tensor.n_bytes for tensor in layers)),
            matrix_values=int(sum(tensor.n_elements for tensor in layers)),
            head_values=int(head.n_elements),
            layers=value["llama.block_count"],
            heads=heads,
            kv_heads=value["llama.attention.head_count_kv"],
            head_dim=value.get("llama.attention.key_length", value["llama.embedding_length"] // heads),
            kv_value_bytes=kv_value_bytes,
        )

    def step_bytes(self, sequences: int, context: float) -> float:
        """Bytes that a decode step reads, at this many tokens of context a sequence."""
        kv = 2 * self.layers * self.kv_heads * self.head_dim * self.kv_value_bytes
        return self.weight_bytes + sequences * context * kv

    def token_operations(self, context: float, sampled: bool) -> float:
        """Multiplications and additions of one token with so many tokens of context."""
        attention = 4 * self.layers * self.heads * self.head_dim * context
        return 2 * (self.matrix_values + sampled * self.head_values) + attention


@dataclass(frozen=True)
class Limits:
    """What the machine can do, on all its cores."""

    bytes_per_s: float
    operations_per_s: float
    instruction: str

    @classmethod
    def of(cls, machine: dict[str, Any], format_: str, mib: int) -> Limits:
        """Take the bandwidth of a buffer of about this size, and the best peak for the format's numbers."""
        read = min(machine["read"], key=lambda found: abs(found["mib"] - mib))
        number = {"f32": "f32", "tiny": "f32", "bf16": "bf16"}.get(format_, "int8")
        peaks = [peak for peak in machine["peak"] if peak["number"] in {number, "f32"}]
        if not peaks:
            return cls(read["gb_s"] * 1e9, float("inf"), "unknown")
        best = max(peaks, key=lambda peak: peak["gop_s"])
        return cls(read["gb_s"] * 1e9, best["gop_s"] * 1e9, f"{best['number']}, {best['instruction']}")


def step_s(model: Model, limits: Limits, scenario: Scenario) -> tuple[float, float]:
    """Return (seconds by bytes, seconds by operations) of a decode step halfway through the outputs."""
    context = scenario.prompt_len + scenario.output_len / 2
    moved = model.step_bytes(scenario.streams, context) / limits.bytes_per_s
    return moved, scenario.streams * model.token_operations(context, True) / limits.operations_per_s


def scenario_s(model: Model, limits: Limits, scenario: Scenario) -> float:
    """Return the least seconds for all of a scenario: its prompts, then its decode steps.

    A shared prefix is computed once.
    """
    tokens = scenario.requests * scenario.input_len + scenario.prefix_len
    operations = tokens * model.token_operations(scenario.prompt_len / 2, False)
    operations += 2 * scenario.requests * model.head_values
    # Prompts of requests that wait for each other are read with weights of their own.
    waves = -(-scenario.requests // scenario.streams)
    prompts = max(waves * model.weight_bytes / limits.bytes_per_s, operations / limits.operations_per_s)
    return prompts + waves * (scenario.output_len - 1) * max(step_s(model, limits, scenario))
