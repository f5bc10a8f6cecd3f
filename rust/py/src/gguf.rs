//! GGUF headers as Python values.

use std::path::PathBuf;

use octavo_gguf::{Array, Gguf, Value};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::enter::enter;

/// Name, type, row-major shape, offset and length in bytes of a tensor.
type TensorRow = (String, &'static str, Vec<u64>, u64, u64);

/// Reads a GGUF file's header: its metadata and its tensor table.
#[pyfunction]
pub fn read_gguf(py: Python<'_>, path: PathBuf) -> PyResult<(Bound<'_, PyDict>, Vec<TensorRow>)> {
    let gguf = enter(py, move || Gguf::open(path))?;
    let metadata = PyDict::new(py);
    for (key, value) in gguf.iter() {
        metadata.set_item(key, value_to_python(py, value)?)?;
    }
    let tensors = gguf
        .tensors()
        .iter()
        .map(|tensor| {
            (
                tensor.name.clone(),
                tensor.ggml_type.name(),
                tensor.shape.clone(),
                tensor.offset,
                tensor.byte_len,
            )
        })
        .collect();
    Ok((metadata, tensors))
}

fn value_to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Value::U8(number) => number.into_bound_py_any(py),
        Value::I8(number) => number.into_bound_py_any(py),
        Value::U16(number) => number.into_bound_py_any(py),
        Value::I16(number) => number.into_bound_py_any(py),
        Value::U32(number) => number.into_bound_py_any(py),
        Value::I32(number) => number.into_bound_py_any(py),
        Value::U64(number) => number.into_bound_py_any(py),
        Value::I64(number) => number.into_bound_py_any(py),
        Value::F32(number) => number.into_bound_py_any(py),
        Value::F64(number) => number.into_bound_py_any(py),
        Value::Bool(flag) => flag.into_bound_py_any(py),
        Value::String(text) => text.into_bound_py_any(py),
        Value::Array(array) => array_to_python(py, array).map(Bound::into_any),
    }
}

fn array_to_python<'py>(py: Python<'py>, array: &Array) -> PyResult<Bound<'py, PyList>> {
    match array {
        Array::U8(items) => PyList::new(py, items),
        Array::I8(items) => PyList::new(py, items),
        Array::U16(items) => PyList::new(py, items),
        Array::I16(items) => PyList::new(py, items),
        Array::U32(items) => PyList::new(py, items),
        Array::I32(items) => PyList::new(py, items),
        Array::U64(items) => PyList::new(py, items),
        Array::I64(items) => PyList::new(py, items),
        Array::F32(items) => PyList::new(py, items),
        Array::F64(items) => PyList::new(py, items),
        Array::Bool(items) => PyList::new(py, items),
        Array::String(items) => PyList::new(py, items),
        Array::Array(items) => {
            let lists = items.iter().map(|item| array_to_python(py, item)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, lists)
        }
    }
}
