//! Python buffers as byte slices that outlive the GIL.

use std::slice;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A C-contiguous buffer, kept alive and in place by its export.
#[derive(Debug)]
pub struct Bytes(PyBuffer<u8>);

impl<'a, 'py> FromPyObject<'a, 'py> for Bytes {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let buffer = PyBuffer::<u8>::get(&object)?;
        if buffer.is_c_contiguous() {
            Ok(Self(buffer))
        } else {
            Err(PyValueError::new_err("the buffer must be contiguous bytes"))
        }
    }
}

impl Bytes {
    /// The bytes to read.
    pub fn read(&self) -> &[u8] {
        if self.0.len_bytes() == 0 {
            return &[];
        }
        // SAFETY: the export pins a C-contiguous block of `len_bytes` bytes for as long as `self` lives. The
        // step protocol gives a buffer to one side at a time, so nobody writes it during this borrow.
        unsafe { slice::from_raw_parts(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }

    /// The bytes to write; `ValueError` where the buffer is read-only.
    pub fn write(&mut self) -> PyResult<&mut [u8]> {
        if self.0.readonly() {
            return Err(PyValueError::new_err("the buffer is read-only"));
        }
        if self.0.len_bytes() == 0 {
            return Ok(&mut []);
        }
        // SAFETY: as in `read`, and the buffer is writable; `&mut self` makes this the only slice of ours.
        Ok(unsafe { slice::from_raw_parts_mut(self.0.buf_ptr().cast(), self.0.len_bytes()) })
    }
}
