//! The one way from Python into Rust.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use octavo_core::Kind;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

pyo3::create_exception!(
    octavo._core,
    OverloadedError,
    PyRuntimeError,
    "A limit is reached for now; the same request may succeed later."
);

/// An error on its way to a Python exception.
#[derive(Clone, Debug)]
pub enum Failure {
    /// `ValueError`.
    Invalid(String),
    /// `OverloadedError`.
    Overloaded(String),
    /// `OSError`.
    Io(String),
    /// `RuntimeError`.
    Internal(String),
}

impl From<octavo_core::Error> for Failure {
    fn from(error: octavo_core::Error) -> Self {
        let message = match error.param() {
            Some(param) if !error.message().contains(param) => format!("{param}: {}", error.message()),
            _ => error.message().to_owned(),
        };
        match error.kind() {
            Kind::Invalid => Self::Invalid(message),
            Kind::Overloaded => Self::Overloaded(message),
            Kind::Internal => Self::Internal(message),
        }
    }
}

impl From<octavo_gguf::Error> for Failure {
    fn from(error: octavo_gguf::Error) -> Self {
        match error.io_error() {
            Some(_) => Self::Io(error.to_string()),
            None => Self::Invalid(error.to_string()),
        }
    }
}

impl From<octavo_text::Error> for Failure {
    fn from(error: octavo_text::Error) -> Self {
        let message = error.to_string();
        match error.kind() {
            octavo_text::Kind::NotFound => Self::Io(message),
            octavo_text::Kind::Invalid | octavo_text::Kind::Model => Self::Invalid(message),
            octavo_text::Kind::Internal => Self::Internal(message),
        }
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Invalid(message) => PyValueError::new_err(message),
            Failure::Overloaded(message) => OverloadedError::new_err(message),
            Failure::Io(message) => PyOSError::new_err(message),
            Failure::Internal(message) => PyRuntimeError::new_err(message),
        }
    }
}

/// Runs `work` without the GIL; a panic becomes a `RuntimeError`.
pub fn enter<T, E>(py: Python<'_>, work: impl FnOnce() -> Result<T, E> + Send) -> PyResult<T>
where
    T: Send,
    E: Into<Failure> + Send,
{
    py.detach(|| {
        catch_unwind(AssertUnwindSafe(work))
            .map_err(|panic| Failure::Internal(format!("internal error: {}", panic_text(&*panic))))
            .and_then(|result| result.map_err(Into::into))
    })
    .map_err(PyErr::from)
}

/// [`enter`] for what cannot fail but by a panic.
pub fn run<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    enter(py, || Ok::<T, Failure>(work()))
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a message")
}
