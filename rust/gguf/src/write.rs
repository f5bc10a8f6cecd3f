//! Writes small GGUF files, for tests.

use crate::tensor::GgmlType;
use crate::value::{Array, Value};

const ALIGNMENT: usize = 32;

/// Collects metadata and tensors, then gives the file's bytes.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    metadata: Vec<(String, Value)>,
    tensors: Vec<(String, GgmlType, Vec<u64>, Vec<u8>)>,
}

impl Writer {
    /// An empty file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a metadata value.
    #[must_use]
    pub fn value(mut self, key: &str, value: Value) -> Self {
        self.metadata.push((key.to_owned(), value));
        self
    }

    /// Adds a string value.
    #[must_use]
    pub fn string(self, key: &str, value: &str) -> Self {
        self.value(key, Value::String(value.to_owned()))
    }

    /// Adds a tensor; `shape` is outermost first, `data` its bytes as stored.
    #[must_use]
    pub fn tensor(mut self, name: &str, ggml_type: GgmlType, shape: &[u64], data: &[u8]) -> Self {
        self.tensors.push((name.to_owned(), ggml_type, shape.to_vec(), data.to_vec()));
        self
    }

    /// The file, in version 3.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3_u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            put_string(&mut out, key);
            put_value(&mut out, value);
        }
        let mut offset = 0_usize;
        for (name, ggml_type, shape, data) in &self.tensors {
            put_string(&mut out, name);
            out.extend((shape.len() as u32).to_le_bytes());
            for size in shape.iter().rev() {
                out.extend(size.to_le_bytes());
            }
            out.extend((*ggml_type as u32).to_le_bytes());
            out.extend((offset as u64).to_le_bytes());
            offset = (offset + data.len()).next_multiple_of(ALIGNMENT);
        }
        for (_, _, _, data) in &self.tensors {
            out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
            out.extend(data);
        }
        out
    }
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    macro_rules! put {
        ($($name:ident $code:literal),*) => {
            match value {
                $(Value::$name(number) => {
                    out.extend(u32::to_le_bytes($code));
                    out.extend(number.to_le_bytes());
                })*
                Value::Bool(flag) => {
                    out.extend(7_u32.to_le_bytes());
                    out.push(u8::from(*flag));
                }
                Value::String(text) => {
                    out.extend(8_u32.to_le_bytes());
                    put_string(out, text);
                }
                Value::Array(array) => {
                    out.extend(9_u32.to_le_bytes());
                    put_array(out, array);
                }
            }
        };
    }
    put!(U8 0, I8 1, U16 2, I16 3, U32 4, I32 5, F32 6, U64 10, I64 11, F64 12);
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    let mut head = |code: u32| {
        out.extend(code.to_le_bytes());
        out.extend((array.len() as u64).to_le_bytes());
    };
    macro_rules! put {
        ($($name:ident $code:literal),*) => {
            match array {
                $(Array::$name(items) => {
                    head($code);
                    for item in items {
out.extend(item.to_le_bytes());
}
                })*
                Array::Bool(items) => {
                    head(7);
                    out.extend(items.iter().map(|item| u8::from(*item)));
                }
                Array::String(items) => {
                    head(8);
                    for item in items {
put_string(out, item);
}
                }
                Array::Array(items) => {
                    head(9);
                    for item in items {
put_array(out, item);
}
                }
            }
        };
    }
    put!(U8 0, I8 1, U16 2, I16 3, U32 4, I32 5, F32 6, U64 10, I64 11, F64 12);
}
