"""The kernels of `rust/cpu`: the ops of `octavo.ops` on a CPU, same signatures, same contracts.

A row's result never depends on the other rows. `OCTAVO_CPU_ISA` (scalar, avx2, avx2vnni, avx512, neon,
neondot) overrides the choice of instruction set. Until `start_threads` says otherwise, as many threads
compute as torch has.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from octavo._core import CpuKernels, Int8Weight, PackedWeight, QuantizedWeight
from octavo.ops.torch_attention import kv_row
from octavo.quantization.blocks import Blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from octavo.ops.metadata import AttentionMetadata

_CODES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
_CACHE_CODES = _CODES | {torch.int8: 3}

_GGML_TYPES = {"Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14}

_kernels = CpuKernels(torch.get_num_threads(), [])

isa: str = _kernels.isa
"""The instruction set in use."""

_made: list[Tensor] | None = None


@contextmanager
def recording() -> Iterator[tuple[CpuKernels, list[Tensor]]]:
    """Keeps what kernels do meanwhile: (the kernels, which have the calls; the tensors made, which stay)."""
    global _made  # noqa: PLW0603
    _made = []
    _kernels.record(True)
    try:
        yield _kernels, _made
    finally:
        _made = None
        _kernels.record(False)


def _empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    tensor = torch.empty(shape, dtype=dtype)
    if _made is not None:
        _made.append(tensor)
    return tensor


def start_threads(threads: int, cores: Sequence[int]) -> None:
    """Compute on `threads`, the caller among them, from here on. Each but the caller stays on the core of its
    number in `cores`, unless there are none. Raises ValueError where the system refuses a core.
    """
    global _kernels  # noqa: PLW0603  (ops are functions of this module)
    _kernels = CpuKernels(threads, list(cores))


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See `torch_dense.rms_norm`."""
    width = weight.shape[0]
    out = _empty(x.shape, x.dtype)
    if x.dim() == 3 and x.shape[2] == width:
        _kernels.rms_norm(_heads(x), None, x.shape[1], _vector(weight), eps, _heads(out))
    else:
        _kernels.rms_norm(_rows(x, width), None, 1, _vector(weight), eps, _rows(out, width))
    return out


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """See `torch_dense.add_rms_norm`; overwrites `residual`."""
    width = weight.shape[0]
    if x.shape != residual.shape:
        raise ValueError(f"add_rms_norm: {tuple(x.shape)} onto {tuple(residual.shape)}")
    out = _empty(x.shape, x.dtype)
    _kernels.rms_norm(_rows(x, width), _rows(residual, width), 1, _vector(weight), eps, _rows(out, width))
    return out, residual


def rotary(
    positions: Tensor, q: Tensor, k: Tensor, cos_sin_cache: Tensor, *, interleaved: bool = False
) -> None:
    """See `torch_dense.rotary`."""
    tokens, q_heads, head_dim = q.shape
    table = (cos_sin_cache.data_ptr(), *cos_sin_cache.shape)
    if (
        positions.dtype is not torch.int64
        or cos_sin_cache.dtype is not torch.float32
        or not (positions.is_contiguous() and cos_sin_cache.is_contiguous())
        or positions.shape[0] != tokens
        or k.shape[0] != tokens
        or table[2] > head_dim
    ):
        raise ValueError("rotary: int64 positions for each token and a contiguous float32 table are needed")
    _kernels.rotary(
        positions.data_ptr(), _heads(q), q_heads, _heads(k), k.shape[1], head_dim, table, interleaved
    )


def silu_and_mul(x: Tensor) -> Tensor:
    """See `torch_dense.silu_and_mul`."""
    return _gate_and_mul(x, gelu=False)


def gelu_and_mul(x: Tensor) -> Tensor:
    """See `torch_dense.gelu_and_mul`."""
    return _gate_and_mul(x, gelu=True)


def _gate_and_mul(x: Tensor, *, gelu: bool) -> Tensor:
    rows, width = x.shape
    out = _empty((rows, width // 2), x.dtype)
    _kernels.gate_and_mul(gelu, _rows(x, width), width // 2, _rows(out, width // 2))
    return out


def scale(x: Tensor, factor: float) -> Tensor:
    """See `torch_dense.scale`."""
    _kernels.scale(_rows(x, x.shape[1]), x.shape[1], factor)
    return x


def embedding(tokens: Tensor, weight: Tensor) -> Tensor:
    """See `torch_dense.embedding`; IndexError-like ids are a ValueError."""
    wide, width = _wide_ids(tokens), weight.shape[1]
    out = _empty((tokens.shape[0], width), weight.dtype)
    _kernels.embedding(_rows(weight, width), width, tokens.data_ptr(), wide, _rows(out, width))
    return out


def pack_linear(weight: Tensor, bias: Tensor | None = None) -> PackedLinear:
    """See `torch_dense.pack_linear`; the weight is copied into panels."""
    return PackedLinear(_packed(weight, _wide_bias(bias, weight.shape[0])), weight.shape)


def pack_int8_linear(weight: Tensor, scale: Tensor, bias: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """See `torch_int8.pack_int8_linear`; the weight is copied into panels."""
    n, k = weight.shape
    if weight.dtype is not torch.int8 or scale.shape != (n,):
        raise ValueError(
            f"int8 linear: {weight.dtype} and scales of shape {tuple(scale.shape)} for {n} outputs"
        )
    weight, scale, wide = weight.contiguous(), scale.float().contiguous(), _wide_bias(bias, n)
    address = 0 if wide is None else wide.data_ptr()
    packed = Int8Weight(_kernels, weight.data_ptr(), scale.data_ptr(), n, k, address)
    return PackedLinear(packed, weight.shape)


class PackedLinear:
    """A product with fixed weights [out, in], called on `x` [tokens, in], of `x`'s type."""

    __slots__ = ("_in", "_multiply", "_out", "_packed", "size_bytes")

    def __init__(self, packed: PackedWeight | Int8Weight, shape: torch.Size) -> None:
        self.size_bytes = packed.size_bytes
        self._packed, self._multiply = packed, packed.linear
        self._out, self._in = shape

    def __call__(self, x: Tensor) -> Tensor:
        """[tokens, in] -> [tokens, out]."""
        rows = _rows(x, self._in)
        out = _empty((rows[2], self._out), x.dtype)
        self._multiply(rows, (out.data_ptr(), rows[1], rows[2], self._out))
        return out

    def rows(self, tokens: Tensor, dtype: torch.dtype) -> Tensor:
        """[tokens] -> [tokens, in]; the weight is of floats of this type."""
        if not isinstance(self._packed, PackedWeight) or self._packed.dtype != _CODES[dtype]:
            raise TypeError(f"rows of {dtype} are looked up in weights of that type")
        wide = _wide_ids(tokens)
        out = _empty((tokens.shape[0], self._in), dtype)
        self._packed.rows(tokens.data_ptr(), wide, _rows(out, self._in))
        return out


def pack_quantized_linear(parts: Sequence[Blocks | Tensor], bias: Tensor | None = None) -> QuantizedLinear:
    """See `torch_quantized.pack_quantized_linear`; `x` is rounded to 8 bits where a part is of blocks."""
    return QuantizedLinear(parts, bias)


class QuantizedLinear:
    """A product for each run of parts that are alike, each into its columns of the output."""

    def __init__(self, parts: Sequence[Blocks | Tensor], bias: Tensor | None = None) -> None:
        widths = [part.shape[0] for part in parts]
        self._in, self._out = parts[0].shape[1], sum(widths)
        if any(part.shape[1] != self._in for part in parts):
            raise ValueError(f"linear: parts of shapes {[tuple(part.shape) for part in parts]} side by side")
        wide = _wide_bias(bias, self._out)
        self.size_bytes = 0
        self._products: list[tuple[int, Tensor | None, QuantizedWeight | PackedWeight]] = []
        start = 0
        for run in _runs(parts):
            end = start + sum(part.shape[0] for part in run)
            own = None if wide is None else wide[start:end]
            packed = _packed_blocks(run, own) if isinstance(run[0], Blocks) else _packed(torch.cat(run), own)
            self.size_bytes += packed.size_bytes
            order = run[0].order if isinstance(run[0], Blocks) else None
            inputs = None if order is None else torch.from_numpy(order)
            self._products.append((start, inputs, packed))
            start = end

    def __call__(self, x: Tensor) -> Tensor:
        """[tokens, in] -> [tokens, out]."""
        rows = _rows(x, self._in)
        out = _empty((rows[2], self._out), x.dtype)
        for start, inputs, product in self._products:
            place = out.data_ptr() + start * out.itemsize
            # Bound to a name: the kernel gets an address alone.
            own = x if inputs is None else x.index_select(1, inputs)
            product.linear(_rows(own, self._in), (place, rows[1], rows[2], self._out))
        return out

    def rows(self, tokens: Tensor, dtype: torch.dtype) -> Tensor:
        """[tokens] -> [tokens, in]; the weight is one part of blocks."""
        [(_, inputs, table)] = self._products
        if inputs is not None or not isinstance(table, QuantizedWeight):
            raise TypeError("rows are looked up in blocks")
        wide = _wide_ids(tokens)
        out = _empty((tokens.shape[0], self._in), dtype)
        table.rows(tokens.data_ptr(), wide, _rows(out, self._in))
        return out


def quantize(weight: Tensor, format_name: str) -> Blocks:
    """See `torch_quantized.quantize`."""
    weight = weight.contiguous()
    n, k = weight.shape
    data = QuantizedWeight.quantize(
        _kernels, _GGML_TYPES[format_name], weight.data_ptr(), _CODES[weight.dtype], n, k
    )
    return Blocks(np.frombuffer(data, np.uint8).reshape(n, -1), format_name)


def _runs(parts: Sequence[Blocks | Tensor]) -> list[list[Any]]:
    """Neighbours of the same format and order of columns together."""
    runs: list[list[Any]] = []
    for part in parts:
        if not runs or not _alike(runs[-1][-1], part):
            runs.append([])
        runs[-1].append(part)
    return runs


def _alike(one: Blocks | Tensor, other: Blocks | Tensor) -> bool:
    if isinstance(one, Blocks) and isinstance(other, Blocks):
        if one.order is None or other.order is None:
            return one.format == other.format and one.order is other.order
        return one.format == other.format and np.array_equal(one.order, other.order)
    return isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and one.dtype == other.dtype


def _packed_blocks(parts: list[Blocks], bias: Tensor | None) -> QuantizedWeight:
    data = parts[0].data if len(parts) == 1 else np.concatenate([part.data for part in parts])
    ggml_type, address = _GGML_TYPES[parts[0].format], 0 if bias is None else bias.data_ptr()
    shape = data.shape[0], parts[0].shape[1]
    return QuantizedWeight(_kernels, ggml_type, (data.ctypes.data, data.nbytes), *shape, address)


def _packed(weight: Tensor, bias: Tensor | None) -> PackedWeight:
    weight, (n, k) = weight.contiguous(), weight.shape
    address = 0 if bias is None else bias.data_ptr()
    return PackedWeight(_kernels, weight.data_ptr(), _CODES[weight.dtype], n, k, address)


def _wide_bias(bias: Tensor | None, outputs: int) -> Tensor | None:
    wide = None if bias is None else bias.float().contiguous()
    if wide is not None and wide.shape != (outputs,):
        raise ValueError(f"linear: a bias of shape {tuple(wide.shape)} for {outputs} outputs")
    return wide


def write_kv(k: Tensor, v: Tensor, kv_cache: Tensor, slot_mapping: Tensor) -> None:
    """See `torch_attention.write_kv`."""
    if slot_mapping.dtype is not torch.int64 or not slot_mapping.is_contiguous():
        raise ValueError("write_kv: contiguous int64 slots are needed")
    cache = _cache(kv_cache, k.shape[2])
    if k.shape != v.shape or k.shape[:2] != (slot_mapping.shape[0], kv_cache.shape[2]):
        raise ValueError(
            f"write_kv: keys {tuple(k.shape)}, values {tuple(v.shape)}, {slot_mapping.shape[0]} slots"
        )
    _kernels.write_kv(_heads(k), _heads(v), cache, slot_mapping.data_ptr())


def paged_attention(
    q: Tensor,
    kv_cache: Tensor,
    metadata: AttentionMetadata,
    scale: float,
    *,
    window: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    """See `torch_attention.paged_attention`."""
    tokens, heads, head_dim = q.shape
    out = _empty((tokens, heads, head_dim), q.dtype)
    rows = sequences(metadata, kv_cache.shape[3])
    _kernels.attention(
        _heads(q), heads, _cache(kv_cache, head_dim), rows, scale, window, softcap, _heads(out)
    )
    return out


def sequences(metadata: AttentionMetadata, block_size: int) -> tuple[int, int, int, int, int]:
    """The sequences of a step: (number, addresses of starts, lengths and tables, entries of a table)."""
    starts, lens, tables = metadata.query_start, metadata.seq_lens, metadata.block_tables
    if (
        any(t.dtype is not torch.int32 for t in (starts, lens, tables))
        or not (starts.is_contiguous() and lens.is_contiguous())
        or tables.stride(1) != 1
    ):
        raise ValueError("attention: int32 query starts, lengths and block tables are needed")
    count = lens.shape[0]
    if starts.shape[0] != count + 1 or tables.shape[0] < count:
        raise ValueError(f"attention: {starts.shape[0]} starts, {count} lengths, {tables.shape[0]} tables")
    if metadata.max_seq_len > tables.shape[1] * block_size:
        raise ValueError(
            f"attention: {metadata.max_seq_len} tokens do not fit a table of {tables.shape[1]} blocks"
        )
    return count, starts.data_ptr(), lens.data_ptr(), tables.data_ptr(), tables.stride(0)


def greedy(logits: Tensor) -> tuple[Tensor, Tensor]:
    """See `torch_sampling.greedy`."""
    rows = logits.shape[0]
    values, tokens = torch.empty(rows), torch.empty(rows, dtype=torch.int64)
    _kernels.greedy(_logits(logits), logits.shape[1], values.data_ptr(), tokens.data_ptr())
    return values, tokens


def draw(
    logits: Tensor, *, temperature: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor, uniform: Tensor
) -> Tensor:
    """See `torch_sampling.draw`."""
    rows = logits.shape[0]
    floats = [t.to(torch.float32).contiguous() for t in (temperature, top_p, min_p)]
    ranks, draws = top_k.to(torch.int32).contiguous(), uniform.to(torch.float64).contiguous()
    if any(t.shape != (rows,) for t in (*floats, ranks, draws)):
        raise ValueError(f"draw: one number of each parameter is needed for {rows} rows")
    tokens = torch.empty(rows, dtype=torch.int64)
    parameters = (
        floats[0].data_ptr(), ranks.data_ptr(), floats[1].data_ptr(), floats[2].data_ptr(), draws.data_ptr()
    )  # fmt: skip
    _kernels.draw(_logits(logits), logits.shape[1], parameters, tokens.data_ptr())
    return tokens


def token_logprobs(logits: Tensor, tokens: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `torch_sampling.token_logprobs`."""
    rows, vocab = logits.shape
    tokens = tokens.to(torch.int64).contiguous()
    if tokens.shape != (rows,) or not 0 <= k <= vocab:
        raise ValueError(f"token_logprobs: {tuple(tokens.shape)} tokens for {rows} rows, {k} best of {vocab}")
    logprob, rank = torch.empty(rows), torch.empty(rows, dtype=torch.int32)
    ids, best = torch.empty((rows, k), dtype=torch.int32), torch.empty((rows, k))
    out = (logprob.data_ptr(), rank.data_ptr(), ids.data_ptr(), best.data_ptr())
    _kernels.token_logprobs(_logits(logits), vocab, tokens.data_ptr(), k, out)
    return logprob, rank, ids, best


def _rows(x: Tensor, width: int) -> tuple[int, int, int, int]:
    """A tensor [..., width] with rows equally far apart: (address, type, rows, elements from row to row)."""
    if x.dim() != 2:
        x = x.view(-1, width)
    if x.shape[1] != width or (x.stride(1) != 1 and width > 1):
        raise ValueError(f"a tensor of shape {tuple(x.shape)} has no contiguous rows of {width}")
    return x.data_ptr(), _CODES[x.dtype], x.shape[0], x.stride(0)


def _heads(x: Tensor) -> tuple[int, int, int, int]:
    """A tensor [tokens, heads, head_dim], contiguous within a token."""
    if x.stride(2) != 1 or x.stride(1) != x.shape[2]:
        raise ValueError(f"heads of shape {tuple(x.shape)} are not contiguous within a token")
    return x.data_ptr(), _CODES[x.dtype], x.shape[0], x.stride(0)


def _wide_ids(tokens: Tensor) -> bool:
    """Whether ids [tokens] are int64 and not int32."""
    if tokens.dtype not in (torch.int32, torch.int64) or tokens.dim() != 1 or not tokens.is_contiguous():
        raise ValueError("embedding: contiguous int32 or int64 ids [tokens] are needed")
    return tokens.dtype is torch.int64


def _vector(x: Tensor) -> tuple[int, int, int]:
    return x.data_ptr(), _CODES[x.dtype], x.shape[0]


def _cache(x: Tensor, head_dim: int) -> tuple[int, int, int, int, int, int]:
    """A layer's cache: (address, type, blocks, KV heads, block size, head_dim)."""
    if not x.is_contiguous():
        raise ValueError("a layer's KV cache is contiguous")
    blocks, _, heads, size, row = x.shape
    if row != kv_row(head_dim, x.dtype):
        raise ValueError(f"heads of {head_dim} over a cache of {x.dtype} rows of {row}")
    return x.data_ptr(), _CACHE_CODES[x.dtype], blocks, heads, size, head_dim


def _logits(x: Tensor) -> tuple[int, int, int, int]:
    if x.dtype is not torch.float32:
        raise ValueError(f"logits are float32, not {x.dtype}")
    return _rows(x, x.shape[1])
