"""The golden records, and runners that are held to them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from stepper import Stepper

from octavo.executor.runner import RunnerConfig

GOLDEN = Path(os.environ.get("OCTAVO_GOLDEN", Path(__file__).parents[1] / "golden" / "data"))


def read_records(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / name).read_text().splitlines()]


def exact(model: Path, **options: Any) -> Stepper:
    """A runner in float32 on the CPU."""
    defaults = {"max_num_seqs": 32, "max_num_batched_tokens": 512, "kv_cache_memory_bytes": 1 << 29}
    return Stepper(RunnerConfig(model=str(model), dtype="float32", device="cpu", **defaults | options))
