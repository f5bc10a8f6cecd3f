"""Products with the integers of a folder, against the floats that they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from test_quantized_folders import KINDS, write

from octavo import ops
from octavo.layers import Backend, MergedLinear, block_slots, checkpoint_slots, finish_loading
from octavo.loader import block_source, open_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

LAYER = "model.layers.0.self_attn"


@pytest.mark.parametrize("kind", KINDS)
def test_parts_with_orders_of_their_own_are_one_product(tmp_path: Path, kind: str) -> None:
    """Query, key and value of an act-order checkpoint each sort their inputs in another way."""
    floats = write(tmp_path, kind)
    source = block_source(open_checkpoint(str(tmp_path)), None, ops.torch_ops.quantize)
    assert source is not None
    backend = Backend(torch.device("cpu"), torch.float32, ops.select(torch.device("cpu")))
    parts = {name: floats[f"{LAYER}.{name}.weight"].shape[0] for name in ("q_proj", "k_proj", "v_proj")}
    layer = MergedLinear(backend, 64, parts)
    model = torch.nn.ModuleDict({"self_attn": layer})
    for name, place in block_slots(model).items():
        place.take(source.read_blocks(f"model.layers.0.self_attn.{name}"))
    assert not checkpoint_slots(model)
    finish_loading(model)
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    weight = torch.cat([floats[f"{LAYER}.{name}.weight"] for name in parts])
    # Half a step of an input, 1 / 254 of the greatest, for each of 64.
    bound = x.abs().max() / 254 * weight.abs().sum(1).max() + 1e-3
    assert (layer(x) - x @ weight.T).abs().max() <= bound
