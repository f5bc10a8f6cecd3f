"""How GPTQ, AWQ and compressed-tensors lay integers, scales and zeros out in tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from octavo.quantization.grouped import Grouped, unpack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Tensors = Mapping[str, NDArray[Any]]
    Shapes = Mapping[str, tuple[int, ...] | None]


class UnsupportedSchemeError(ValueError):
    """The integers are of a kind that cannot be read."""


class Scheme(ABC):
    """One method's layout, as a checkpoint's `quantization_config` describes it."""

    tensors: frozenset[str]
    """Last parts of the names of a layer's packed tensors."""
    marker: str
    """The one that holds the integers."""
    scales: ClassVar[str]
    """The one that holds the scales."""
    group_axis: ClassVar[int]
    """Which axis of the scales counts groups."""
    block_format: str | None
    """The blocks that hold such a weight; None where none do."""
    bits: int

    @abstractmethod
    def __init__(self, config: Mapping[str, Any]) -> None:
        """From `quantization_config`. Raises `UnsupportedSchemeError`."""

    @abstractmethod
    def shape(self, shapes: Shapes) -> tuple[int, int]:
        """(outputs, inputs) of a layer from its tensors' shapes."""

    @abstractmethod
    def unpack(self, tensors: Tensors) -> Grouped:
        """A layer's weight. KeyError, ValueError or IndexError where tensors are missing or do not fit."""


def _bits(config: Mapping[str, Any], *names: str) -> int:
    bits = next((config[name] for name in names if name in config), None)
    if bits not in (4, 8):
        raise UnsupportedSchemeError(f"weights of {bits!r} bits are not supported; supported are 4 and 8")
    return int(bits)


def _format(bits: int, *, centred: bool) -> str | None:
    if bits == 8:
        return "Q8_0" if centred else None
    return "Q4_0" if centred else "Q4_1"


class GPTQ(Scheme):
    """`qweight` [inputs packed, outputs], `qzeros` [groups, outputs packed], `scales` [groups, outputs],
    `g_idx` [inputs].
    """

    tensors = frozenset({"qweight", "qzeros", "scales", "g_idx"})
    marker, scales, group_axis = "qweight", "scales", 0

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.bits = _bits(config, "bits")
        kind = config.get("checkpoint_format", "gptq")
        if kind not in ("gptq", "gptq_v2"):
            raise UnsupportedSchemeError(f"checkpoint_format {kind!r} is not supported")
        # The first version stores zeros less one.
        self._added = 1 if kind == "gptq" else 0
        self.block_format = _format(self.bits, centred=bool(config.get("sym", True)))

    def shape(self, shapes: Shapes) -> tuple[int, int]:
        """(outputs, inputs)."""
        packed, outputs = shapes["qweight"] or (0, 0)
        return outputs, packed * 32 // self.bits

    def unpack(self, tensors: Tensors) -> Grouped:
        """A layer's weight."""
        integers = unpack(tensors["qweight"].T, self.bits)
        zeros = unpack(tensors["qzeros"], self.bits).astype(np.int32).T + self._added
        scales = np.ascontiguousarray(tensors["scales"].T)
        groups = tensors.get("g_idx")
        in_order = np.arange(integers.shape[1]) // (integers.shape[1] // scales.shape[1])
        if groups is None or (groups == in_order).all() or not groups.any():
            groups = None
        return _checked(Grouped(integers, scales, zeros, self.bits, groups))


class AWQ(Scheme):
    """`qweight` [inputs, outputs packed], `qzeros` [groups, outputs packed], `scales` [groups, outputs].
    Eight outputs share a word, even ones first.
    """

    tensors = frozenset({"qweight", "qzeros", "scales"})
    marker, scales, group_axis = "qweight", "scales", 0

    _ORDER: ClassVar[list[int]] = [0, 4, 1, 5, 2, 6, 3, 7]
    """Where outputs 0, 1, ... of a word lie in it."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.bits = _bits(config, "bits", "w_bit")
        if self.bits != 4:
            raise UnsupportedSchemeError("AWQ weights of 8 bits are not supported; supported are 4")
        version = str(config.get("version", "gemm")).lower()
        if version != "gemm":
            raise UnsupportedSchemeError(f"AWQ version {version!r} is not supported; supported is 'gemm'")
        self.block_format = _format(4, centred=not config.get("zero_point", True))

    def shape(self, shapes: Shapes) -> tuple[int, int]:
        """(outputs, inputs)."""
        inputs, packed = shapes["qweight"] or (0, 0)
        return packed * 8, inputs

    def unpack(self, tensors: Tensors) -> Grouped:
        """A layer's weight."""
        integers, scales = self._outputs(tensors["qweight"]), np.ascontiguousarray(tensors["scales"].T)
        zeros = np.full(scales.shape, 8, np.int32)
        if "qzeros" in tensors:
            zeros = self._outputs(tensors["qzeros"]).astype(np.int32)
        return _checked(Grouped(integers, scales, zeros, 4))

    def _outputs(self, words: NDArray[np.int32]) -> NDArray[np.uint8]:
        """[n, outputs packed] -> [outputs, n]."""
        parts = unpack(words, 4).reshape(len(words), -1, 8)
        return np.ascontiguousarray(parts[..., self._ORDER].reshape(len(words), -1).T)


class CompressedTensors(Scheme):
    """`pack-quantized`: `weight_packed` [outputs, inputs packed], or `int-quantized`: `weight` int8
    [outputs, inputs]; `weight_scale` [outputs, groups], `weight_zero_point`, `weight_g_idx`. One group where
    there is one scale an output.
    """

    scales, group_axis = "weight_scale", 1

    def __init__(self, config: Mapping[str, Any]) -> None:
        kind = config.get("format")
        groups = list((config.get("config_groups") or {}).values())
        if kind not in ("pack-quantized", "int-quantized") or not groups:
            raise UnsupportedSchemeError(
                f"compressed-tensors format {kind!r} is not supported; supported are 'pack-quantized' and "
                "'int-quantized'"
            )
        weights = [group.get("weights") or {} for group in groups]
        if any(
            w.get("type", "int") != "int" or w.get("num_bits") != weights[0].get("num_bits") for w in weights
        ):
            raise UnsupportedSchemeError("weights other than integers of one size are not supported")
        self.bits = _bits(weights[0], "num_bits")
        self._packed = kind == "pack-quantized"
        if not self._packed and self.bits != 8:
            raise UnsupportedSchemeError("int-quantized weights other than of 8 bits are not supported")
        self.marker = "weight_packed" if self._packed else "weight"
        self.tensors = frozenset(
            {self.marker, "weight_scale", "weight_zero_point", "weight_g_idx", "weight_shape", "input_scale"}
        )
        self.block_format = _format(self.bits, centred=all(w.get("symmetric", True) for w in weights))

    def shape(self, shapes: Shapes) -> tuple[int, int]:
        """(outputs, inputs)."""
        outputs, inputs = shapes[self.marker] or (0, 0)
        return outputs, inputs * 32 // self.bits if self._packed else inputs

    def unpack(self, tensors: Tensors) -> Grouped:
        """A layer's weight."""
        stored, scales, middle = tensors[self.marker], tensors["weight_scale"], 1 << (self.bits - 1)
        integers = unpack(stored, self.bits) if self._packed else stored.view(np.uint8) ^ np.uint8(0x80)
        groups = scales.shape[1] if scales.ndim > 1 else 1
        scales = np.broadcast_to(scales.reshape(-1, groups), (len(integers), groups))
        zeros = np.full(scales.shape, middle, np.int32)
        given = tensors.get("weight_zero_point")
        if given is not None and self._packed:
            zeros = unpack(given.T, self.bits).T[: len(integers)].astype(np.int32)
        elif given is not None:
            zeros = zeros + given.reshape(len(integers), -1)
        return _checked(Grouped(integers, scales, zeros, self.bits, tensors.get("weight_g_idx")))


def _checked(grouped: Grouped) -> Grouped:
    rows, columns = grouped.integers.shape
    groups = grouped.scales.shape[1]
    if grouped.scales.shape != (rows, groups) or grouped.zeros.shape != (rows, groups) or columns % groups:
        raise ValueError(
            f"{rows} x {columns} integers, scales {grouped.scales.shape}, zeros {grouped.zeros.shape}"
        )
    order = grouped.group_of
    if order is not None:
        counts = np.bincount(order, minlength=groups) if order.min(initial=0) >= 0 else np.zeros(0)
        if len(order) != columns or len(counts) != groups:
            raise ValueError(f"{len(order)} group indices up to {order.max(initial=0)} for {groups} groups")
        if (counts != columns // groups).any():
            raise ValueError("groups of columns are not of one size")
    return grouped
