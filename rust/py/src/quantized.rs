//! Quantised weights of `octavo-cpu` for `octavo.ops.cpu`; see `cpu` for what crosses.

use std::slice;
use std::sync::Arc;

use octavo_cpu::linear::WeightRef;
use octavo_cpu::quant::{Format, quantize_rows};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::call::{Call, Weight};
use crate::cpu::{Carry, CpuKernels, Kernels, Matrix, dtype, matrix};
use crate::enter::{Failure, enter};

fn format(ggml_type: u32) -> PyResult<Format> {
    Format::from_ggml(ggml_type).ok_or_else(|| {
        PyValueError::new_err(format!("there are no kernels for blocks of ggml type {ggml_type}"))
    })
}

/// A weight of blocks in the kernels' own order.
#[pyclass(frozen)]
#[derive(Debug)]
pub struct QuantizedWeight {
    weight: Arc<octavo_cpu::quant::QuantizedWeight>,
    kernels: Arc<Kernels>,
}

#[pymethods]
impl QuantizedWeight {
    /// Repacks `n` rows of `k` weights, `data` being their address and size in bytes, with a float32 bias `[n]` at
    /// `bias` (0: none).
    #[new]
    fn new(
        py: Python<'_>,
        kernels: &CpuKernels,
        ggml_type: u32,
        data: (usize, usize),
        n: usize,
        k: usize,
        bias: usize,
    ) -> PyResult<Self> {
        let (kernels, format) = (Arc::clone(&kernels.0), format(ggml_type)?);
        let (data, size) = data;
        let call = Carry((data as *const u8, bias as *const f32));
        enter(py, move || {
            let Carry((data, bias)) = { call };
            // SAFETY: `ops.cpu` passes tensors of these sizes that outlive the call.
            let (data, bias) = unsafe {
                let bias = (!bias.is_null()).then(|| slice::from_raw_parts(bias, n));
                (slice::from_raw_parts(data, size), bias)
            };
            let weight =
                octavo_cpu::quant::QuantizedWeight::pack(&kernels.cpu.pool, format, data, (n, k), bias)
                    .map_err(Failure::Invalid)?;
            Ok::<_, Failure>(Self { weight: Arc::new(weight), kernels })
        })
    }

    /// Bytes held.
    #[getter]
    fn size_bytes(&self) -> usize {
        self.weight.size_bytes()
    }

    /// `out = x @ weight.T + bias`, inputs rounded to 8 bits.
    fn linear(&self, py: Python<'_>, x: Matrix, out: Matrix) -> PyResult<()> {
        let weight = Weight::Blocks(Arc::clone(&self.weight));
        self.kernels.issue(py, Call::Linear { weight, x: matrix(x)?, out: matrix(out)? })
    }

    /// Rows of the weight by id, without the bias; `wide` ids are int64, others int32.
    fn rows(&self, py: Python<'_>, ids: usize, wide: bool, out: Matrix) -> PyResult<()> {
        let weight = Weight::Blocks(Arc::clone(&self.weight));
        self.kernels.issue(py, Call::WeightRows { weight, ids, wide, out: matrix(out)? })
    }

    /// Blocks of a contiguous weight `[n, k]` of floats at `data`.
    #[staticmethod]
    fn quantize<'py>(
        py: Python<'py>,
        kernels: &CpuKernels,
        ggml_type: u32,
        data: usize,
        code: u8,
        n: usize,
        k: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (kernels, format) = (Arc::clone(&kernels.0), format(ggml_type)?);
        let weight = Carry(WeightRef { data: data as *const u8, dtype: dtype(code)?, n, k });
        let blocks = enter(py, move || {
            let Carry(weight) = { weight };
            // SAFETY: `ops.cpu` passes a tensor of this size that outlives the call.
            unsafe { quantize_rows(&kernels.cpu.pool, format, weight) }.map_err(Failure::Invalid)
        })?;
        Ok(PyBytes::new(py, &blocks))
    }
}
