"""Block formats of GGUF files, decoded to float32.

A tensor is rows of blocks; a block holds 32 or 256 weights as small integers with one or two half-precision
scales and, in the K formats, small integer scales of sub-blocks. Layouts are those of ggml's public headers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Floats = NDArray[np.float32]


@dataclass(frozen=True)
class BlockFormat:
    """How `block_size` weights lie in `block_bytes` bytes."""

    name: str
    block_size: int
    block_bytes: int
    decode: Callable[[Bytes], Floats]
    """uint8 [blocks, block_bytes] -> float32 [blocks, block_size]."""


def dequantize(data: Bytes, type_name: str) -> Floats:
    """Decodes uint8 [rows, bytes of a row] to float32 [rows, columns]. `type_name` is one of `FORMATS`."""
    layout = FORMATS[type_name]
    if data.shape[-1] % layout.block_bytes:
        raise ValueError(f"rows of {data.shape[-1]} bytes are no whole number of {type_name} blocks")
    rows = data.shape[0]
    columns = data.shape[1] // layout.block_bytes * layout.block_size
    out = np.empty((rows, columns), np.float32)
    step = max(1, _CHUNK_WEIGHTS // max(columns, 1))
    for start in range(0, rows, step):
        part = data[start : start + step].reshape(-1, layout.block_bytes)
        out[start : start + step] = layout.decode(part).reshape(-1, columns)
    return out


_CHUNK_WEIGHTS = 1 << 20
"""Weights decoded at once: temporaries stay in cache."""

_LOW_HIGH = np.array([0, 4], np.uint8).reshape(1, 1, 2, 1)
_PAIRS = np.array([0, 2, 4, 6], np.uint8)
_ONE, _FOUR, _LOW = np.uint8(1), np.uint8(4), np.uint8(15)
_BITS = np.arange(8, dtype=np.uint8)

_IQ4_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


def _half(data: Bytes) -> Floats:
    """Two bytes a block -> float32 [blocks, 1]."""
    return np.ascontiguousarray(data).view(np.float16).astype(np.float32)


def _nibbles(data: Bytes, group: int) -> Bytes:
    """Low nibbles of each `group` bytes, then their high nibbles: [blocks, n] -> [blocks, 2 n]."""
    parts = data.reshape(len(data), -1, 1, group) >> _LOW_HIGH
    return (parts & _LOW).reshape(len(data), -1)


def _fifth_bits(data: Bytes) -> Bytes:
    """32 bits, lowest first -> 0 or 16, [blocks, 32]."""
    return np.unpackbits(data, axis=1, bitorder="little") << _FOUR


def _float32(data: Bytes) -> Floats:
    return np.ascontiguousarray(data).view(np.float32)


def _bfloat16(data: Bytes) -> Floats:
    return (np.ascontiguousarray(data).view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _q4_0(data: Bytes) -> Floats:
    return _half(data[:, :2]) * (_nibbles(data[:, 2:], 16).astype(np.float32) - 8)


def _q4_1(data: Bytes) -> Floats:
    return _half(data[:, :2]) * _nibbles(data[:, 4:], 16).astype(np.float32) + _half(data[:, 2:4])


def _q5_0(data: Bytes) -> Floats:
    quants = _nibbles(data[:, 6:], 16) | _fifth_bits(data[:, 2:6])
    return _half(data[:, :2]) * (quants.astype(np.float32) - 16)


def _q5_1(data: Bytes) -> Floats:
    quants = _nibbles(data[:, 8:], 16) | _fifth_bits(data[:, 4:8])
    return _half(data[:, :2]) * quants.astype(np.float32) + _half(data[:, 2:4])


def _q8_0(data: Bytes) -> Floats:
    return _half(data[:, :2]) * data[:, 2:].view(np.int8).astype(np.float32)


def _sub_blocks(scale: Floats, quants: NDArray[np.float32]) -> NDArray[np.float32]:
    """Multiplies [blocks, s] scales with [blocks, 256] weights, 256 / s each."""
    shaped = quants.reshape(*scale.shape, -1)
    return scale[..., None] * shaped


def _q2_k(data: Bytes) -> Floats:
    scales, quants = data[:, :16], data[:, 16:80]
    scale = _half(data[:, 80:82]) * (scales & 15).astype(np.float32)
    low = _half(data[:, 82:84]) * (scales >> 4).astype(np.float32)
    values = (quants.reshape(-1, 2, 1, 32) >> _PAIRS.reshape(1, 1, 4, 1)) & 3
    return (_sub_blocks(scale, values.astype(np.float32)) - low[..., None]).reshape(-1, 256)


def _q3_k(data: Bytes) -> Floats:
    mask, quants, packed = data[:, :32], data[:, 32:96], data[:, 96:108]
    high_bits = (packed[:, None, 8:] >> _PAIRS.reshape(1, 4, 1)) & 3
    scales = _nibbles(packed[:, :8], 8) | (high_bits.reshape(-1, 16) << 4)
    scale = _half(data[:, 108:110]) * (scales.astype(np.float32) - 32)
    values = (quants.reshape(-1, 2, 1, 32) >> _PAIRS.reshape(1, 1, 4, 1)) & 3
    missing = ((mask[:, None, :] >> _BITS.reshape(1, 8, 1)) & 1 ^ 1) << 2
    centred = values.reshape(-1, 256).astype(np.float32) - missing.reshape(-1, 256)
    return _sub_blocks(scale, centred).reshape(-1, 256)


def _scales_and_lows(packed: Bytes) -> tuple[Bytes, Bytes]:
    """Twelve bytes -> eight 6-bit scales and eight 6-bit minima."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, (third & 15) | (first >> 6 << 4)], axis=1)
    lows = np.concatenate([second & 63, (third >> 4) | (second >> 6 << 4)], axis=1)
    return scales, lows


def _q4_q5_k(data: Bytes, quants: Bytes) -> Floats:
    scales, lows = _scales_and_lows(data[:, 4:16])
    scale = _half(data[:, :2]) * scales.astype(np.float32)
    low = _half(data[:, 2:4]) * lows.astype(np.float32)
    return (_sub_blocks(scale, quants.astype(np.float32)) - low[..., None]).reshape(-1, 256)


def _q4_k(data: Bytes) -> Floats:
    return _q4_q5_k(data, _nibbles(data[:, 16:], 32))


def _q5_k(data: Bytes) -> Floats:
    fifth = ((data[:, None, 16:48] >> _BITS.reshape(1, 8, 1)) & _ONE) << _FOUR
    return _q4_q5_k(data, _nibbles(data[:, 48:], 32) | fifth.reshape(-1, 256))


def _q6_k(data: Bytes) -> Floats:
    low = _nibbles(data[:, :128], 64)
    high = (data[:, 128:192].reshape(-1, 2, 1, 32) >> _PAIRS.reshape(1, 1, 4, 1)) & 3
    scale = _half(data[:, 208:210]) * data[:, 192:208].view(np.int8).astype(np.float32)
    values = (low | (high.reshape(-1, 256) << 4)).astype(np.float32) - 32
    return _sub_blocks(scale, values).reshape(-1, 256)


def _iq4_nl(data: Bytes) -> Floats:
    return _half(data[:, :2]) * _IQ4_VALUES[_nibbles(data[:, 2:], 16)]


def _iq4_xs(data: Bytes) -> Floats:
    high = np.ascontiguousarray(data[:, 2:4]).view(np.uint16) >> (2 * np.arange(8, dtype=np.uint16)) & 3
    low = (data[:, 4:8, None] >> np.array([0, 4], np.uint8) & 15).reshape(-1, 8)
    scale = _half(data[:, :2]) * ((low | (high.astype(np.uint8) << 4)).astype(np.float32) - 32)
    return _sub_blocks(scale, _IQ4_VALUES[_nibbles(data[:, 8:], 16)]).reshape(-1, 256)


FORMATS: dict[str, BlockFormat] = {
    layout.name: layout
    for layout in (
        BlockFormat("F32", 1, 4, _float32),
        BlockFormat("F16", 1, 2, _half),
        BlockFormat("BF16", 1, 2, _bfloat16),
        BlockFormat("Q4_0", 32, 18, _q4_0),
        BlockFormat("Q4_1", 32, 20, _q4_1),
        BlockFormat("Q5_0", 32, 22, _q5_0),
        BlockFormat("Q5_1", 32, 24, _q5_1),
        BlockFormat("Q8_0", 32, 34, _q8_0),
        BlockFormat("Q2_K", 256, 84, _q2_k),
        BlockFormat("Q3_K", 256, 110, _q3_k),
        BlockFormat("Q4_K", 256, 144, _q4_k),
        BlockFormat("Q5_K", 256, 176, _q5_k),
        BlockFormat("Q6_K", 256, 210, _q6_k),
        BlockFormat("IQ4_NL", 32, 18, _iq4_nl),
        BlockFormat("IQ4_XS", 256, 136, _iq4_xs),
    )
}
"""ggml type name -> format."""
