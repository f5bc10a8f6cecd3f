"""Folders of integers, packed here as the tools that make them do, against the floats that they stand for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from test_checkpoints import CONFIG, build, filled, tensors
from torch import Tensor

from octavo.layers import block_slots, checkpoint_slots
from octavo.loader import CheckpointError, block_source, fill, fill_blocks, open_checkpoint
from octavo.loader.quantized_folder import QuantizedFolder
from octavo.ops import torch_ops

if TYPE_CHECKING:
    from pathlib import Path

LAYER = "model.layers.0.self_attn.q_proj"
SHAPES = {"hidden_size": 64, "intermediate_size": 96}


@dataclass
class Integers:
    """`scale * (q - zero)`, by row and group of columns."""

    q: Tensor
    scale: Tensor
    zero: Tensor
    group_of: Tensor

    @property
    def weight(self) -> Tensor:
        group = self.group_of.long()
        return self.scale.float()[:, group] * (self.q - self.zero[:, group])


def random_integers(
    rows: int, columns: int, size: int, bits: int = 4, *, centred: bool = True, shuffled: bool = False
) -> Integers:
    generator = torch.Generator().manual_seed(rows)
    groups = columns // size
    shape = (rows, groups)
    zero = torch.randint(1, 2**bits, shape, generator=generator)
    order = torch.randperm(columns, generator=generator) if shuffled else torch.arange(columns)
    return Integers(
        q=torch.randint(0, 2**bits, (rows, columns), generator=generator),
        scale=(torch.rand(shape, generator=generator) * 0.01 + 0.001).half(),
        zero=torch.full(shape, 2 ** (bits - 1)) if centred else zero,
        group_of=(torch.arange(columns) // size)[order].int(),
    )


def packed(values: Tensor, bits: int, axis: int, order: list[int] | None = None) -> Tensor:
    """Words of 32 bits along an axis; word position `i` takes the value `order[i]` of its run."""
    count = 32 // bits
    runs = values.movedim(axis, -1).unflatten(-1, (-1, count)).numpy().astype(np.uint32)
    words = np.zeros(runs.shape[:-1], np.uint32)
    for place, index in enumerate(order or range(count)):
        words |= runs[..., index] << np.uint32(bits * place)
    return torch.from_numpy(words.view(np.int32)).movedim(-1, axis).contiguous()


def gptq(w: Integers, bits: int, added: int = 1) -> dict[str, Tensor]:
    return {
        "qweight": packed(w.q.T, bits, 0),
        "qzeros": packed((w.zero.T - added) % 2**bits, bits, 1),
        "scales": w.scale.T.contiguous(),
        "g_idx": w.group_of,
    }


def awq(w: Integers) -> dict[str, Tensor]:
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    return {
        "qweight": packed(w.q.T, 4, 1, order),
        "qzeros": packed(w.zero.T, 4, 1, order),
        "scales": w.scale.T.contiguous(),
    }


def pack_quantized(w: Integers, bits: int, *, zeros: bool) -> dict[str, Tensor]:
    rows, columns = w.q.shape
    given = {"weight_zero_point": packed(w.zero, bits, 0)} if zeros else {}
    return given | {
        "weight_packed": packed(w.q, bits, 1),
        "weight_scale": w.scale,
        "weight_shape": torch.tensor([rows, columns]),
    }


def int_quantized(w: Integers) -> dict[str, Tensor]:
    return {"weight": (w.q - 128).to(torch.int8), "weight_scale": w.scale}


def compressed(kind: str, bits: int, *, symmetric: bool = True) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "format": kind, "config_groups": groups}


GPTQ: dict[str, Any] = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True}
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any], Any]] = {
    "gptq": (GPTQ, {}, lambda w: gptq(w, 4)),
    "gptq in order of activations": (GPTQ | {"desc_act": True}, {"shuffled": True}, lambda w: gptq(w, 4)),
    "gptq with zeros": (GPTQ | {"sym": False}, {"centred": False}, lambda w: gptq(w, 4)),
    "gptq v2": (
        GPTQ | {"sym": False, "checkpoint_format": "gptq_v2"}, {"centred": False}, lambda w: gptq(w, 4, 0)
    ),
    "gptq of 8 bits": (GPTQ | {"bits": 8}, {"bits": 8}, lambda w: gptq(w, 8)),
    "awq": ({"quant_method": "awq", "bits": 4, "version": "gemm"}, {"centred": False}, awq),
    "packed": (compressed("pack-quantized", 4), {}, lambda w: pack_quantized(w, 4, zeros=False)),
    "packed with zeros": (
        compressed("pack-quantized", 4, symmetric=False), {"centred": False},
        lambda w: pack_quantized(w, 4, zeros=True),
    ),
    "int8": (compressed("int-quantized", 8), {"bits": 8, "size": -1}, int_quantized),
}  # fmt: skip
"""Name -> (quantization_config, what the integers are like, how they are stored)."""


def write(folder: Path, kind: str, **changes: Any) -> dict[str, Tensor]:
    """Writes a model whose layers are all integers; returns the floats that they stand for."""
    described, traits, store = KINDS[kind]
    config = CONFIG | SHAPES | {"quantization_config": described} | changes
    floats, stored = {}, {}
    for name, value in tensors(**SHAPES).items():
        layer = name.removesuffix(".weight")
        if not layer.endswith("_proj"):
            floats[name] = stored[name] = value
            continue
        rows, columns = value.shape
        size = columns if traits.get("size") == -1 else 32
        made = random_integers(rows, columns, size, **{k: v for k, v in traits.items() if k != "size"})
        floats[name] = made.weight
        stored |= {f"{layer}.{part}": tensor for part, tensor in store(made).items()}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(stored, folder / "model.safetensors")
    return floats


@pytest.mark.parametrize("kind", KINDS)
def test_integers_are_read_as_floats(tmp_path: Path, kind: str) -> None:
    floats = write(tmp_path, kind)
    slots = filled(tmp_path)
    assert slots.keys() == floats.keys()
    for name, slot in slots.items():
        assert torch.allclose(slot, floats[name], rtol=1e-6, atol=1e-8), name


@pytest.mark.parametrize("kind", KINDS)
def test_integers_stay_integers(tmp_path: Path, kind: str) -> None:
    """Blocks are exact but for minima, up to 0.17 here, which are rounded to 16 bits."""
    floats = write(tmp_path, kind)
    checkpoint = open_checkpoint(str(tmp_path))
    source = block_source(checkpoint, KINDS[kind][0]["quant_method"], torch_ops.quantize)
    assert source is not None
    model = build(checkpoint.config)
    places = block_slots(model)
    taken = fill_blocks(places, source, checkpoint, lambda *_: None)
    assert taken == {name for name in floats if "_proj" in name}
    for name in taken:
        blocks = source.read_blocks(name)
        assert blocks.data.nbytes == source.block_bytes(name)
        assert torch.allclose(blocks.dequantize(), floats[name], rtol=0, atol=0.17 * 2**-11), name
    rest = checkpoint_slots(model)
    fill(rest, checkpoint, lambda *_: None, taken)
    assert rest.keys() | taken == floats.keys()


def test_a_bias_of_zeros_may_be_left_over(tmp_path: Path) -> None:
    floats = write(tmp_path, "gptq")
    stored = {f"{LAYER}.bias": torch.zeros(64)}
    save_file(stored, tmp_path / "more.safetensors")
    (tmp_path / "model.safetensors").rename(tmp_path / "first.safetensors")
    assert filled(tmp_path).keys() == floats.keys()
    save_file({f"{LAYER}.bias": torch.ones(64)}, tmp_path / "more.safetensors")
    with pytest.raises(CheckpointError, match=f"unexpected: {LAYER}.bias"):
        filled(tmp_path)


def test_groups_that_are_no_whole_blocks_become_floats(tmp_path: Path) -> None:
    described = GPTQ | {"group_size": 16}
    made = random_integers(64, 64, 16)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | SHAPES | {"quantization_config": described}))
    save_file({f"{LAYER}.{k}": v for k, v in gptq(made, 4).items()}, tmp_path / "model.safetensors")
    folder = open_checkpoint(str(tmp_path))
    assert isinstance(folder, QuantizedFolder)
    assert folder.block_bytes(f"{LAYER}.weight") is None
    assert torch.allclose(folder.read(f"{LAYER}.weight"), made.weight)


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ({"quant_method": "exl2"}, "quantised with 'exl2'; supported are gptq, awq, compressed-tensors"),
        (GPTQ | {"bits": 3}, "weights of 3 bits are not supported"),
        (GPTQ | {"checkpoint_format": "marlin"}, "checkpoint_format 'marlin' is not supported"),
        ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "AWQ version 'gemv' is not supported"),
        (compressed("float-quantized", 8), "compressed-tensors format 'float-quantized'"),
    ],
)
def test_what_is_not_known_is_refused(tmp_path: Path, described: dict[str, Any], message: str) -> None:
    write(tmp_path, "gptq", quantization_config=described)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(str(tmp_path))


def test_tensors_that_do_not_fit_are_named(tmp_path: Path) -> None:
    write(tmp_path, "gptq")
    made = gptq(random_integers(64, 64, 32), 4) | {"scales": torch.ones(2, 32).half()}
    save_file({f"{LAYER}.{k}": v for k, v in made.items()}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=f"the tensors of {LAYER} do not fit together"):
        open_checkpoint(str(tmp_path)).read(f"{LAYER}.weight")


def test_another_method_than_asked_for_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "gptq")
    with pytest.raises(CheckpointError, match=r"quantization is awq, but the weights of .* are gptq"):
        block_source(open_checkpoint(str(tmp_path)), "awq", torch_ops.quantize)
