//! The kernels of `octavo-cpu` for `octavo.ops.cpu`, which checks tensors before it passes their addresses here.
//!
//! Every method takes addresses, sizes in elements and the types of elements (0 float32, 1 bfloat16, 2 float16), and
//! runs without the GIL. None of them is of use elsewhere: a wrong address is a crash.

#![allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools)]

use std::slice;
use std::sync::{Arc, Mutex, PoisonError};

use octavo_cpu::linear::WeightRef;
use octavo_cpu::sampling::{DrawRows, LogprobsOut, draw, greedy, token_logprobs};
use octavo_cpu::{CacheType, Cpu, DType, MatRef};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::call::{self, Call, CosSin, Live, Sequences, Vector, Weight};
use crate::enter::{Failure, enter};
use crate::program::{Group, Inputs, Made, Program};

/// A matrix from Python: address, type, rows, elements from row to row.
pub(crate) type Matrix = (usize, u8, usize, usize);
/// A layer's KV cache: address, type, blocks, KV heads, tokens of a block, values of a head.
type Cache = (usize, u8, usize, usize, usize, usize);
/// Sequences: number, addresses of int32 query starts, lengths and block tables, entries from table to table.
type Rows = (usize, usize, usize, usize, usize);

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

pub(crate) fn matrix((data, code, rows, stride): Matrix) -> PyResult<call::Matrix> {
    Ok(call::Matrix { data, dtype: dtype(code)?, rows, stride })
}

fn view((data, code, rows, stride): Matrix) -> PyResult<MatRef> {
    Ok(MatRef { data: data as *const u8, dtype: dtype(code)?, rows, stride })
}

fn cache((data, code, num_blocks, kv_heads, block_size, head_dim): Cache) -> PyResult<call::Cache> {
    Ok(call::Cache { data, kind: cache_type(code)?, num_blocks, kv_heads, block_size, head_dim })
}

fn sequences((count, starts, lens, tables, table_stride): Rows) -> Sequences {
    Sequences { count, starts, lens, tables, table_stride }
}

/// Lets the closure that leaves the GIL carry plain pointers.
pub(crate) struct Carry<T>(pub T);
// SAFETY: the caller holds the tensors until the call returns, and only that call uses the pointers.
unsafe impl<T> Send for Carry<T> {}

fn run<T>(py: Python<'_>, call: T, work: impl FnOnce(T) -> Result<(), String> + Send) -> PyResult<()> {
    let call = Carry(call);
    enter(py, move || {
        let Carry(call) = { call };
        work(call).map_err(Failure::Invalid)
    })
}

/// What all kernel calls share.
#[derive(Debug)]
pub(crate) struct Kernels {
    pub cpu: Cpu,
    /// The calls since recording began.
    recorded: Mutex<Option<Vec<Call<Live>>>>,
}

impl Kernels {
    /// Runs a call, and keeps it while recording.
    pub fn issue(&self, py: Python<'_>, call: Call<Live>) -> PyResult<()> {
        enter(py, || {
            // SAFETY: `ops.cpu` has checked the shapes and holds the tensors.
            unsafe { call.run(&self.cpu) }.map_err(Failure::Invalid)
        })?;
        if let Some(calls) = self.recorded.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            calls.push(call);
        }
        Ok(())
    }
}

/// An instruction set and threads.
#[pyclass(frozen)]
#[derive(Debug)]
pub struct CpuKernels(pub(crate) Arc<Kernels>);

#[pymethods]
impl CpuKernels {
    /// `threads` compute, the caller among them; each but the caller keeps to the core of its number in `cores`,
    /// where there are any.
    #[new]
    fn new(threads: usize, cores: Vec<usize>) -> PyResult<Self> {
        let cpu = Cpu::new(threads).map_err(PyValueError::new_err)?;
        cpu.pool.bind(&cores).map_err(PyValueError::new_err)?;
        Ok(Self(Arc::new(Kernels { cpu, recorded: Mutex::new(None) })))
    }

    /// The name of the instruction set in use.
    #[getter]
    fn isa(&self) -> String {
        self.0.cpu.isa.to_string()
    }

    /// `out = norm(x) * weight` of each of the `parts` vectors of a row; with `residual`, of `residual += x`. `weight` is
    /// (address, type, elements).
    #[pyo3(signature = (x, residual, parts, weight, eps, out))]
    fn rms_norm(
        &self,
        py: Python<'_>,
        x: Matrix,
        residual: Option<Matrix>,
        parts: usize,
        weight: (usize, u8, usize),
        eps: f32,
        out: Matrix,
    ) -> PyResult<()> {
        let weight = Vector { data: weight.0, dtype: dtype(weight.1)?, len: weight.2 };
        let (x, residual, out) = (matrix(x)?, residual.map(matrix).transpose()?, matrix(out)?);
        self.0.issue(py, Call::RmsNorm { x, residual, parts, weight, eps, out })
    }

    /// `out = silu(gate) * up` of rows of 2 n, or with `gelu(gate)`.
    fn gate_and_mul(&self, py: Python<'_>, gelu: bool, x: Matrix, n: usize, out: Matrix) -> PyResult<()> {
        self.0.issue(py, Call::GateAndMul { gelu, x: matrix(x)?, n, out: matrix(out)? })
    }

    /// Multiplies rows of `n` elements in place.
    fn scale(&self, py: Python<'_>, x: Matrix, n: usize, factor: f32) -> PyResult<()> {
        self.0.issue(py, Call::Scale { x: matrix(x)?, n, factor })
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
        self.0.issue(py, Call::Embedding { table: matrix(table)?, n, ids, wide, out: matrix(out)? })
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
        let (data, rows, rotary_dim) = table;
        let table = CosSin { data, rows, rotary_dim, interleaved };
        let (q, k) = (matrix(q)?, matrix(k)?);
        self.0.issue(py, Call::Rotary { positions, q, q_heads, k, k_heads, head_dim, table })
    }

    /// Writes keys and values to their slots, which are int64.
    fn write_kv(&self, py: Python<'_>, k: Matrix, v: Matrix, kv_cache: Cache, slots: usize) -> PyResult<()> {
        self.0.issue(py, Call::WriteKv { k: matrix(k)?, v: matrix(v)?, cache: cache(kv_cache)?, slots })
    }

    /// Attends `q` of `heads` heads to the rows' blocks.
    #[pyo3(signature = (q, heads, kv_cache, rows, scale, window, softcap, out))]
    fn attention(
        &self,
        py: Python<'_>,
        q: Matrix,
        heads: usize,
        kv_cache: Cache,
        rows: Rows,
        scale: f32,
        window: Option<usize>,
        softcap: Option<f32>,
        out: Matrix,
    ) -> PyResult<()> {
        let (q, cache, sequences, out) = (matrix(q)?, cache(kv_cache)?, sequences(rows), matrix(out)?);
        self.0.issue(py, Call::Attention { q, heads, cache, sequences, scale, window, softcap, out })
    }

    /// Whether calls are kept from here on; those kept before are dropped.
    fn record(&self, on: bool) {
        *self.0.recorded.lock().unwrap_or_else(PoisonError::into_inner) = on.then(Vec::new);
    }

    /// The kept calls as one pass, and an end to keeping them. `ids`, `positions`, `groups` and `out` are as in [`CpuProgram::run`]; `made` is the
    /// address and bytes of each tensor that was made meanwhile, all of which still live.
    ///
    /// Raises ValueError where a call works on anything else.
    fn recorded(
        &self,
        tokens: usize,
        ids: usize,
        positions: usize,
        groups: Vec<(Rows, usize)>,
        out: usize,
        made: Vec<(usize, usize)>,
    ) -> PyResult<CpuProgram> {
        let calls = self.0.recorded.lock().unwrap_or_else(PoisonError::into_inner).take();
        let calls = calls.ok_or_else(|| PyRuntimeError::new_err("nothing is being recorded"))?;
        let groups = step_groups(groups);
        let made: Vec<_> = made.into_iter().map(|(address, bytes)| Made { address, bytes }).collect();
        let inputs = Inputs { tokens, ids, positions, groups: &groups, out };
        let program = Program::new(&calls, &inputs, &made).map_err(PyValueError::new_err)?;
        Ok(CpuProgram { program: Mutex::new(program), kernels: Arc::clone(&self.0) })
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
            unsafe { greedy(&self.0.cpu, logits, vocab, values, tokens) };
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
            unsafe { token_logprobs(&self.0.cpu, logits, vocab, tokens, out) }
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
            unsafe { draw(&self.0.cpu, logits, vocab, call) };
            Ok(())
        })
    }
}

fn step_groups(groups: Vec<(Rows, usize)>) -> Vec<Group> {
    groups.into_iter().map(|(rows, slots)| Group { sequences: sequences(rows), slots }).collect()
}

/// A recorded forward pass.
#[pyclass(frozen)]
#[derive(Debug)]
pub struct CpuProgram {
    program: Mutex<Program>,
    kernels: Arc<Kernels>,
}

#[pymethods]
impl CpuProgram {
    /// Runs the pass on `tokens` tokens: addresses of int64 ids and positions, of each group of layers its rows and int64
    /// slots, and of the output.
    fn run(
        &self,
        py: Python<'_>,
        tokens: usize,
        ids: usize,
        positions: usize,
        groups: Vec<(Rows, usize)>,
        out: usize,
    ) -> PyResult<()> {
        let groups = step_groups(groups);
        let inputs = Inputs { tokens, ids, positions, groups: &groups, out };
        enter(py, || {
            let mut program = self.program.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: `ops.cpu_program` passes tensors of these shapes and holds them; it also holds the model.
            unsafe { program.run(&self.kernels.cpu, &inputs) }.map_err(Failure::Invalid)
        })
    }

    fn __len__(&self) -> usize {
        self.program.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// A weight in the kernels' own order.
#[pyclass(frozen)]
#[derive(Debug)]
pub struct PackedWeight {
    weight: Arc<octavo_cpu::linear::PackedWeight>,
    kernels: Arc<Kernels>,
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
        let kernels = Arc::clone(&kernels.0);
        let call =
            Carry((WeightRef { data: data as *const u8, dtype: dtype(code)?, n, k }, bias as *const f32));
        enter(py, move || {
            let Carry((weight, bias)) = { call };
            // SAFETY: `ops.cpu` has checked the shapes.
            let weight = unsafe {
                let bias = (!bias.is_null()).then(|| slice::from_raw_parts(bias, n));
                octavo_cpu::linear::PackedWeight::pack(&kernels.cpu.pool, weight, bias)
            };
            Ok::<_, Failure>(Self { weight: Arc::new(weight), kernels })
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
        let weight = Weight::Dense(Arc::clone(&self.weight));
        self.kernels.issue(py, Call::Linear { weight, x: matrix(x)?, out: matrix(out)? })
    }

    /// Rows of the weight by id, of its type and without the bias; `wide` ids are int64, others int32.
    fn rows(&self, py: Python<'_>, ids: usize, wide: bool, out: Matrix) -> PyResult<()> {
        let weight = Weight::Dense(Arc::clone(&self.weight));
        self.kernels.issue(py, Call::WeightRows { weight, ids, wide, out: matrix(out)? })
    }
}

/// Adds the classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<CpuKernels>()?;
    module.add_class::<CpuProgram>()?;
    module.add_class::<PackedWeight>()?;
    module.add_class::<crate::quantized::QuantizedWeight>()
}
