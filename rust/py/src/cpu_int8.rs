//! Weights of 8 bits an output row for `octavo.ops.cpu`; addresses as in [`crate::cpu`].

use std::slice;
use std::sync::Arc;

use pyo3::prelude::*;

use crate::call::{Call, Weight};
use crate::cpu::{Carry, CpuKernels, Kernels, Matrix, matrix};
use crate::enter::{Failure, enter};

/// An 8-bit weight in the kernels' own order.
#[pyclass(frozen)]
#[derive(Debug)]
pub struct Int8Weight {
    weight: Arc<octavo_cpu::quant::Int8Weight>,
    kernels: Arc<Kernels>,
}

#[pymethods]
impl Int8Weight {
    /// Copies a contiguous int8 weight `[n, k]` at `data`, float32 scales `[n]` at `scale` and a float32 bias `[n]` at
    /// `bias` (0: none).
    #[new]
    fn new(
        py: Python<'_>,
        kernels: &CpuKernels,
        data: usize,
        scale: usize,
        n: usize,
        k: usize,
        bias: usize,
    ) -> PyResult<Self> {
        let kernels = Arc::clone(&kernels.0);
        let call = Carry((data as *const i8, scale as *const f32, bias as *const f32));
        enter(py, move || {
            let Carry((data, scale, bias)) = { call };
            // SAFETY: `ops.cpu` has checked the shapes.
            let (data, scale, bias) = unsafe {
                (
                    slice::from_raw_parts(data, n * k),
                    slice::from_raw_parts(scale, n),
                    (!bias.is_null()).then(|| slice::from_raw_parts(bias, n)),
                )
            };
            octavo_cpu::quant::Int8Weight::pack(&kernels.cpu.pool, data, scale, (n, k), bias)
                .map(|weight| Self { weight: Arc::new(weight), kernels })
                .map_err(Failure::Invalid)
        })
    }

    /// Bytes held.
    #[getter]
    fn size_bytes(&self) -> usize {
        self.weight.size_bytes()
    }

    /// `out = quantize(x) @ weight.T * scales + bias`.
    fn linear(&self, py: Python<'_>, x: Matrix, out: Matrix) -> PyResult<()> {
        let weight = Weight::Int8(Arc::clone(&self.weight));
        self.kernels.issue(py, Call::Linear { weight, x: matrix(x)?, out: matrix(out)? })
    }
}

/// Adds the class to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Int8Weight>()
}
