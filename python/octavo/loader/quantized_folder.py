"""A Hugging Face folder whose weights are integers: GPTQ, AWQ, or compressed-tensors."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from octavo.loader.checkpoint import CheckpointError
from octavo.quantization.blocks import block_bytes
from octavo.quantization.grouped import BLOCK
from octavo.quantization.integers import AWQ, GPTQ, CompressedTensors, Scheme, UnsupportedSchemeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from torch import Tensor

    from octavo.loader.hf_folder import HFFolder
    from octavo.quantization.blocks import Blocks
    from octavo.quantization.grouped import Grouped

SCHEMES: dict[str, type[Scheme]] = {"gptq": GPTQ, "awq": AWQ, "compressed-tensors": CompressedTensors}
"""`quant_method` of config.json -> how its tensors lie."""


class QuantizedFolder:
    """Shows a folder's packed tensors as the weights that they stand for."""

    def __init__(self, folder: HFFolder) -> None:
        """Raises `CheckpointError` where weights are quantised in a way that is not known."""
        self._folder = folder
        self.path = folder.path
        self.config = dict(self._folder.config)
        described = self.config.pop("quantization_config")
        self.method = str(described.get("quant_method")) if isinstance(described, dict) else str(described)
        if self.method not in SCHEMES:
            raise CheckpointError(
                f"{self.path} is quantised with {self.method!r}; supported are {', '.join(SCHEMES)}, float "
                "checkpoints and GGUF files"
            )
        try:
            self._scheme = SCHEMES[self.method](described)
        except UnsupportedSchemeError as error:
            raise CheckpointError(f"{self.path}: {error}") from None

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Every tensor's shape, those of packed ones as the weights that they stand for."""
        return self._plain | {f"{layer}.weight": shape for layer, shape in self._layers.items()}

    def read(self, name: str) -> Tensor:
        """One tensor; packed ones decoded to float32."""
        layer = name.removesuffix(".weight")
        return self._grouped(layer).dequantize() if layer in self._layers else self._folder.read(name)

    def spare(self, name: str) -> bool:
        """Whether a tensor may be left over: tools write biases of zeros for layers without one."""
        layer, _, kind = name.rpartition(".")
        return kind == "bias" and layer in self._layers and not bool(self._folder.read(name).any())

    def block_bytes(self, name: str) -> int | None:
        """Bytes of a packed weight whose groups are whole blocks; None for others, read as floats."""
        layer = name.removesuffix(".weight")
        layout = self._scheme.block_format
        if layer not in self._layers or layout is None:
            return None
        rows, columns = self._layers[layer]
        groups = self._folder.shapes()[f"{layer}.{self._scheme.scales}"][self._scheme.group_axis]
        if columns % groups or columns // groups % BLOCK:
            return None
        return block_bytes(layout, rows, columns)

    def read_blocks(self, name: str) -> Blocks:
        """One packed weight as blocks."""
        return self._grouped(name.removesuffix(".weight")).to_blocks()

    def _grouped(self, layer: str) -> Grouped:
        prefix = f"{layer}."
        packed = {
            name.removeprefix(prefix): self._array(name)
            for name in self._folder.shapes()
            if name.startswith(prefix) and name.removeprefix(prefix) in self._scheme.tensors
        }
        try:
            grouped = self._scheme.unpack(packed)
        except (KeyError, ValueError, IndexError) as error:
            raise CheckpointError(
                f"{self.path}: the tensors of {layer} do not fit together: {error}"
            ) from None
        if grouped.integers.shape != self._layers[layer]:
            raise CheckpointError(f"{self.path}: the tensors of {layer} do not fit together")
        return grouped

    def _array(self, name: str) -> np.ndarray[Any, Any]:
        tensor = self._folder.read_any(name)
        return tensor.float().numpy() if tensor.is_floating_point() else tensor.numpy()

    @cached_property
    def _layers(self) -> dict[str, tuple[int, int]]:
        """Packed layers: name -> (outputs, inputs)."""
        shapes, layers = self._folder.shapes(), {}
        for name in shapes:
            layer, _, kind = name.rpartition(".")
            if kind == self._scheme.marker and f"{layer}.{self._scheme.scales}" in shapes:
                found = {part: shapes.get(f"{layer}.{part}") for part in self._scheme.tensors}
                layers[layer] = self._scheme.shape(found)
        return layers

    @cached_property
    def _plain(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the other tensors."""

        def packed(name: str) -> bool:
            layer, _, kind = name.rpartition(".")
            return layer in self._layers and kind in self._scheme.tensors

        return {name: shape for name, shape in self._folder.shapes().items() if not packed(name)}
