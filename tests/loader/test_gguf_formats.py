"""Block formats, bit for bit against the `gguf` package."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from octavo.quantization.gguf import FORMATS, dequantize


def random_blocks(name: str, rows: int, blocks: int) -> np.ndarray:
    """Random bytes, but for the half-precision scales, which are finite."""
    layout = FORMATS[name]
    rng = np.random.default_rng(len(name))
    data = rng.integers(0, 256, (rows * blocks, layout.block_bytes), dtype=np.uint8)
    for offset in SCALES[name]:
        scales = rng.standard_normal(rows * blocks).astype(np.float16) * 0.01
        data[:, offset : offset + 2] = scales.reshape(-1, 1).view(np.uint8)
    return data.reshape(rows, -1)


SCALES = {
    "F16": [0],
    "BF16": [],
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "IQ4_NL": [0],
    "IQ4_XS": [0],
}


def test_every_format_is_compared() -> None:
    assert set(SCALES) | {"F32"} == set(FORMATS)


@pytest.mark.parametrize("name", SCALES)
def test_decodes_the_same_bits(name: str) -> None:
    data = random_blocks(name, rows=9, blocks=40)
    ours = dequantize(data, name)
    theirs = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[name])
    assert ours.dtype == np.float32
    assert np.array_equal(ours.view(np.uint32), theirs.astype(np.float32).view(np.uint32))


def test_float32_is_passed_through() -> None:
    values = np.linspace(-3, 3, 24, dtype=np.float32).reshape(2, 12)
    assert np.array_equal(dequantize(values.view(np.uint8), "F32"), values)


def test_large_tensors_are_decoded_in_parts() -> None:
    data = random_blocks("Q8_0", rows=700, blocks=64)
    theirs = gguf.quants.dequantize(data, gguf.GGMLQuantizationType.Q8_0)
    assert np.array_equal(dequantize(data, "Q8_0"), theirs)


def test_a_broken_row_is_refused() -> None:
    with pytest.raises(ValueError, match="no whole number of Q4_0 blocks"):
        dequantize(np.zeros((2, 19), np.uint8), "Q4_0")
