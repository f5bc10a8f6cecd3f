//! The kernels of `octavo-cpu` for `octavo.ops.cpu`, which checks tensors before it passes their addresses here.
//!
//! Every method takes addresses, sizes in elements and the types of elements (0 float32, 1 bfloat16, 2 float16), and
//! runs without the GIL. None of them is of use elsewhere: a wrong address is a crash.

#![allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools)]

use std::slice;
use std::sync::Arc;

use octavo_cpu::attention::{Attention, attend};
use octavo_cpu::elementwise::{Ints, VecRef, embedding, gelu_and_mul, rms_norm, silu_and_mul};
use octavo_cpu::linear::{WeightRef, linear, packed_rows};
use octavo_cpu::rope::{CacheMut, Rotation, rotary, write_kv};
use octavo_cpu::sampling::{DrawRows, LogprobsOut, draw, greedy, token_logprobs};
use octavo_cpu::{CacheType, Cpu, DType, MatMut, MatRef};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::enter::{Failure, enter};

/// A matrix from Python: address, type, rows, elements from row to row.
pub(crate) type Matrix = (usize, u8, usize, usize);
/// A vector from Python: address, type, elements.
type Vector = (usize, u8, usize);

pub(crate) fn dtype(code: u8) -> PyResult<DType> {
    match code {
        0 => Ok(DType::F32),
        1 => Ok(DType::Bf16),
        2 => Ok(DType::F16),
        _ => Err(PyValueError::new_err(format!("{code} is not the code of an element type"))),
    }
}

/// As above, and 3 for bytes with a scale.
fn cache_type(code: u8) -> PyResult<CacheType> {
    if code == 3 { Ok(CacheType::Int8) } else { dtype(code).map(CacheType::Float) }
}

pub(crate) fn view((data, code, rows, stride): Matrix) -> PyResult<MatRef> {
    Ok(MatRef { data: data as *const u8, dtype: dtype(code)?, rows, stride })
}

pub(crate) fn view_mut((data, code, rows, stride): Matrix) -> PyResult<MatMut> {
    Ok(MatMut { data: data as *mut u8, dtype: dtype(code)?, rows, stride })
}

pub(crate) fn ints(data: usize, wide: bool) -> Ints {
    if wide { Ints::I64(data as *const i64) } else { Ints::I32(data as *const i32) }
}

/// Lets the closure that leaves the GIL carry plain pointers.
pub(crate) struct Carry<T>(pub T);
// SAFETY: the caller holds the tensors until the call returns, and only that call uses the pointers.
unsafe impl<T> Send for Carry<T> {}

pub(crate) fn run<T>(
    py: Python<'_>,
    call: T,
    work: impl FnOnce(T) -> Result<(), String> + Send,
) -> PyResult<()> {
    let call = Carry(call);
    enter(py, move || {
        let Carry(call) = { call };
        work(call).map_err(Failure::Invalid)
    })
}

/// An instruction set and threads.
#[pyclass(frozen)]
#[derive(Debug)]
pub struct CpuKernels(pub(crate) Arc<Cpu>);

#[pymethods]
impl CpuKernels {
    /// `threads` compute, the caller among them; each but the caller keeps to the core of its number in `cores`,
    /// where there are any.
    #[new]
    fn new(threads: usize, cores: Vec<usize>) -> PyResult<Self> {
        let cpu = Cpu::new(threads).map_err(PyValueError::new_err)?;
        cpu.pool.bind(&cores).map_err(PyValueError::new_err)?;
        Ok(Self(Arc::new(cpu)))
    }

    /// The name of the instruction set in use.
    #[getter]
    fn isa(&self) -> String {
        self.0.isa.to_string()
    }

    /// `out = norm(x) * weight`; with `residual`, of `residual += x`.
    #[pyo3(signature = (x, residual, weight, eps, out))]
    fn rms_norm(
        &self,
        py: Python<'_>,
        x: Matrix,
        residual: Option<Matrix>,
        weight: Vector,
        eps: f32,
        out: Matrix,
    ) -> PyResult<()> {
        let weight = VecRef { data: weight.0 as *const u8, dtype: dtype(weight.1)?, len: weight.2 };
        let call = (view(x)?, residual.map(view_mut).transpose()?, weight, view_mut(out)?);
        run(py, call, |(x, residual, weight, out)| {
            // SAFETY: `ops.cpu` has checked the shapes.
            unsafe { rms_norm(&self.0, x, residual, weight, eps, out) };
            Ok(())
        })
    }

    /// `out = silu(gate) * up` of rows of 2 n, or with `gelu(gate)`.
    fn gate_and_mul(&self, py: Python<'_>, gelu: bool, x: Matrix, n: usize, out: Matrix) -> PyResult<()> {
        run(py, (view(x)?, view_mut(out)?), |(x, out)| {
            // SAFETY: `ops.cpu` has checked the shapes.
            unsafe { if gelu { gelu_and_mul(&self.0, x, n, out) } else { silu_and_mul(&self.0, x, n, out) } };
            Ok(())
        })
    }

    /// Rows of `table` by id; `wide` ids are int64, others int32.
    fn embedding(
        &self,
        py: Python<'_>,
        table: Matrix,
        n: usize,
        ids: usize,
        wide: bool,
        out: Matrix,
    ) -> PyResult<()> {
        run(py, (view(table)?, ints(ids, wide), view_mut(out)?), |(table, ids, out)| {
            // SAFETY: `ops.cpu` has checked the shapes; ids are checked by the kernel.
            unsafe { embedding(&self.0, table, n, ids, out) }
        })
    }

    /// Rotates `q_heads` heads of `q` and `k_heads` of `k` in place. `table` is (address, rows, rotary_dim) of
    /// float32; positions are int64.
    fn rotary(
        &self,
        py: Python<'_>,
        positions: usize,
        q: Matrix,
        q_heads: usize,
        k: Matrix,
        k_heads: usize,
        head_dim: usize,
        table: (usize, usize, usize),
        interleaved: bool,
    ) -> PyResult<()> {
        let rotation = Rotation {
            positions: ints(positions, true),
            cos_sin: table.0 as *const f32,
            max_position: table.1,
            rotary_dim: table.2,
            interleaved,
        };
        run(py, (rotation, view_mut(q)?, view_mut(k)?), |(rotation, q, k)| {
            // SAFETY: `ops.cpu` has checked the shapes; positions are checked by the kernel.
            unsafe {
                rotary(&self.0, rotation, q, q_heads, head_dim)?;
                rotary(&self.0, rotation, k, k_heads, head_dim)
            }
        })
    }

    /// Writes keys and values to their slots. `cache` is (address, type, num_blocks, kv_heads, block_size, head_dim);
    /// slots are int64.
    fn write_kv(
        &self,
        py: Python<'_>,
        k: Matrix,
        v: Matrix,
        cache: (usize, u8, usize, usize, usize, usize),
        slots: usize,
    ) -> PyResult<()> {
        let (data, code, num_blocks, kv_heads, block_size, head_dim) = cache;
        let (data, kind) = (data as *mut u8, cache_type(code)?);
        let cache = CacheMut { data, kind, num_blocks, kv_heads, block_size, head_dim };
        run(py, (view(k)?, view(v)?, cache, slots as *const i64), |(k, v, cache, slots)| {
            // SAFETY: `ops.cpu` has checked the shapes; slots are checked by the kernel.
            unsafe { write_kv(&self.0, k, v, cache, slots) }
        })
    }

    /// Attends `q` of `heads` heads to the rows' blocks. `rows` is (number, address of int32 query starts, address of
    /// int32 sequence lengths, address of int32 block tables, entries from table to table).
    #[pyo3(signature = (q, heads, cache, rows, scale, window, softcap, out))]
    fn attention(
        &self,
        py: Python<'_>,
        q: Matrix,
        heads: usize,
        cache: (usize, u8, usize, usize, usize, usize),
        rows: (usize, usize, usize, usize, usize),
        scale: f32,
        window: Option<usize>,
        softcap: Option<f32>,
        out: Matrix,
    ) -> PyResult<()> {
        let (data, code, num_blocks, kv_heads, block_size, head_dim) = cache;
        let (count, starts, lens, tables, table_stride) = rows;
        // SAFETY: `ops.cpu` passes arrays of `count + 1` and `count` elements that outlive the call.
        let (query_start, seq_lens) = unsafe {
            (
                slice::from_raw_parts(starts as *const i32, count + 1),
                slice::from_raw_parts(lens as *const i32, count),
            )
        };
        let call = Attention {
            q: view(q)?,
            cache: data as *const u8,
            cache_type: cache_type(code)?,
            num_blocks,
            block_size,
            heads,
            kv_heads,
            head_dim,
            query_start,
            seq_lens,
            block_tables: tables as *const i32,
            table_stride,
            scale,
            window,
            softcap,
        };
        run(py, (call, view_mut(out)?), |(call, out)| {
            // SAFETY: `ops.cpu` has checked the shapes; lengths and blocks are checked by the kernel.
            unsafe { attend(&self.0, &call, out) }
        })
    }

    /// The largest of each row of float32 logits, to float32 `values` and int64 `tokens`.
    fn greedy(
        &self,
        py: Python<'_>,
        logits: Matrix,
        vocab: usize,
        values: usize,
        tokens: usize,
    ) -> PyResult<()> {
        run(py, (view(logits)?, values as *mut f32, tokens as *mut i64), |(logits, values, tokens)| {
            // SAFETY: `ops.cpu` has checked the shapes.
            unsafe { greedy(&self.0, logits, vocab, values, tokens) };
            Ok(())
        })
    }

    /// Log-probabilities, ranks and the `k` best under float32 logits. `out` is the addresses of float32 [n], int32 [n],
    /// int32 [n, k] and float32 [n, k].
    fn token_logprobs(
        &self,
        py: Python<'_>,
        logits: Matrix,
        vocab: usize,
        tokens: usize,
        k: usize,
        out: (usize, usize, usize, usize),
    ) -> PyResult<()> {
        let out = LogprobsOut {
            logprob: out.0 as *mut f32,
            rank: out.1 as *mut i32,
            top_id: out.2 as *mut i32,
            top_logprob: out.3 as *mut f32,
            k,
        };
        run(py, (view(logits)?, tokens as *const i64, out), |(logits, tokens, out)| {
            // SAFETY: `ops.cpu` has checked the shapes; tokens are checked by the kernel.
            unsafe { token_logprobs(&self.0, logits, vocab, tokens, out) }
        })
    }

    /// Random tokens of float32 logits. `parameters` is the addresses of temperature float32, top_k int32, top_p float32,
    /// min_p float32 and uniform float64; `tokens` of int64.
    fn draw(
        &self,
        py: Python<'_>,
        logits: Matrix,
        vocab: usize,
        parameters: (usize, usize, usize, usize, usize),
        tokens: usize,
    ) -> PyResult<()> {
        let call = DrawRows {
            temperature: parameters.0 as *const f32,
            top_k: parameters.1 as *const i32,
            top_p: parameters.2 as *const f32,
            min_p: parameters.3 as *const f32,
            uniform: parameters.4 as *const f64,
            tokens: tokens as *mut i64,
        };
        run(py, (view(logits)?, call), |(logits, call)| {
            // SAFETY: `ops.cpu` has checked the shapes.
            unsafe { draw(&self.0, logits, vocab, call) };
            Ok(())
        })
    }
}

/// A weight in the kernels' own order.
#[pyclass(frozen)]
#[derive(Debug)]
pub struct PackedWeight {
    weight: octavo_cpu::linear::PackedWeight,
    cpu: Arc<Cpu>,
}

#[pymethods]
impl PackedWeight {
    /// Copies a contiguous weight `[n, k]` at `data` and a float32 bias `[n]` at `bias` (0: none).
    #[new]
    fn new(
        py: Python<'_>,
        kernels: &CpuKernels,
        data: usize,
        code: u8,
        n: usize,
        k: usize,
        bias: usize,
    ) -> PyResult<Self> {
        let cpu = Arc::clone(&kernels.0);
        let call =
            Carry((WeightRef { data: data as *const u8, dtype: dtype(code)?, n, k }, bias as *const f32));
        enter(py, move || {
            let Carry((weight, bias)) = { call };
            // SAFETY: `ops.cpu` has checked the shapes.
            let weight = unsafe {
                let bias = (!bias.is_null()).then(|| slice::from_raw_parts(bias, n));
                octavo_cpu::linear::PackedWeight::pack(&cpu.pool, weight, bias)
            };
            Ok::<_, Failure>(Self { weight, cpu })
        })
    }

    /// Bytes held.
    #[getter]
    fn size_bytes(&self) -> usize {
        self.weight.size_bytes()
    }

    /// The code of the type in which it is held.
    #[getter]
    fn dtype(&self) -> u8 {
        match self.weight.dtype() {
            DType::F32 => 0,
            DType::Bf16 => 1,
            DType::F16 => 2,
        }
    }

    /// `out = x @ weight.T + bias`.
    fn linear(&self, py: Python<'_>, x: Matrix, out: Matrix) -> PyResult<()> {
        run(py, (view(x)?, view_mut(out)?), |(x, out)| {
            // SAFETY: `ops.cpu` has checked the shapes.
            unsafe { linear(&self.cpu, &self.weight, x, out) };
            Ok(())
        })
    }

    /// Rows of the weight by id, of its type and without the bias; `wide` ids are int64, others int32.
    fn rows(&self, py: Python<'_>, ids: usize, wide: bool, out: Matrix) -> PyResult<()> {
        run(py, (ints(ids, wide), view_mut(out)?), |(ids, out)| {
            // SAFETY: `ops.cpu` has checked the shapes and types; ids are checked by the kernel.
            unsafe { packed_rows(&self.cpu, &self.weight, ids, out) }
        })
    }
}

/// Adds the classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<CpuKernels>()?;
    module.add_class::<PackedWeight>()?;
    module.add_class::<crate::quantized::QuantizedWeight>()
}
