//! A bounds-checked reader of GGUF files, versions 2 and 3.
//!
//! [`Gguf::open`] reads the header alone: the metadata as typed values and the
//! tensor table with absolute offsets. Tensor bytes stay in the file; whoever
//! wants them maps it. Every count, length and offset is checked before it is
//! used, so a hostile file gives an [`Error`] that says where it is wrong.

mod cursor;
mod error;
mod read;
mod tensor;
mod value;
#[cfg(any(test, feature = "write"))]
pub mod write;

#[cfg(test)]
mod tests;

pub use error::{Error, Result};
pub use read::Gguf;
pub use tensor::{GgmlType, Tensor};
pub use value::{Array, Value};
