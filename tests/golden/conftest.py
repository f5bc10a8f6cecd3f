"""Models and records of the golden tests."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

DATA = Path(os.environ.get("OCTAVO_GOLDEN", Path(__file__).parent / "data"))


@pytest.fixture(scope="session")
def records() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / "smollm2.jsonl").read_text().splitlines()]


@pytest.fixture(scope="session")
def hf_folder(models: Path, gguf: Path) -> Path:
    """The same weights as transformers writes them: float32 safetensors, config.json and tokenizer.json."""
    folder = models / "smollm2-135m-instruct"
    if not folder.is_dir():
        scratch = folder.with_name(f"{folder.name}.{os.getpid()}")
        convert(gguf, scratch)
        if folder.is_dir():  # another run was faster
            shutil.rmtree(scratch)
        else:
            scratch.rename(folder)
    return folder


def convert(gguf: Path, folder: Path) -> None:
    import torch  # noqa: PLC0415
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    model.hf_quantizer, model.is_quantized = None, False
    for owner, name in ((model, "quantization_method"), (model.config, "quantization_config")):
        if hasattr(owner, name):
            delattr(owner, name)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # transformers drops the digit splitting that the file's tokenizer.ggml.pre, smollm, asks for.
    path = folder / "tokenizer.json"
    tokenizer_json = json.loads(path.read_text(encoding="utf-8"))
    tokenizer_json["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        ],
    }
    path.write_text(json.dumps(tokenizer_json, ensure_ascii=False), encoding="utf-8")
