//! Metadata values.

use std::io::Read;

use crate::cursor::Cursor;
use crate::error::Result;

/// Deepest arrays of arrays.
const MAX_NESTING: u32 = 4;

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    String(String),
    Array(Array),
}

/// An array value, with elements of one type.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bool(Vec<bool>),
    String(Vec<String>),
    Array(Vec<Array>),
}

/// Does the same for each numeric type: type code, name, Rust type.
macro_rules! numbers {
    ($callback:ident) => {
        $callback! {
            0 U8 u8, 1 I8 i8, 2 U16 u16, 3 I16 i16, 4 U32 u32, 5 I32 i32,
            6 F32 f32, 10 U64 u64, 11 I64 i64, 12 F64 f64
        }
    };
}

const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

impl Value {
    /// The type's name, for messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::U8(_) => "u8",
            Self::I8(_) => "i8",
            Self::U16(_) => "u16",
            Self::I16(_) => "i16",
            Self::U32(_) => "u32",
            Self::I32(_) => "i32",
            Self::U64(_) => "u64",
            Self::I64(_) => "i64",
            Self::F32(_) => "f32",
            Self::F64(_) => "f64",
            Self::Bool(_) => "bool",
            Self::String(_) => "string",
            Self::Array(_) => "array",
        }
    }

    /// The integer, of whatever width it is stored with.
    pub fn as_i128(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(value) => value.into(),
            Self::I8(value) => value.into(),
            Self::U16(value) => value.into(),
            Self::I16(value) => value.into(),
            Self::U32(value) => value.into(),
            Self::I32(value) => value.into(),
            Self::U64(value) => value.into(),
            Self::I64(value) => value.into(),
            _ => return None,
        })
    }

    /// Reads a value of the type that is coded before it.
    pub(crate) fn read<R: Read>(cursor: &mut Cursor<R>, key: &str) -> Result<Self> {
        let code = cursor.u32(key)?;
        macro_rules! read_number {
            ($($code:literal $name:ident $type:ty),*) => {
                match code {
                    $($code => Self::$name(<$type>::from_le_bytes(cursor.bytes(key)?)),)*
                    BOOL => Self::Bool(read_bool(cursor, key)?),
                    STRING => Self::String(cursor.string(key)?),
                    ARRAY => Self::Array(Array::read(cursor, key, 1)?),
                    _ => return Err(cursor.error(format!("{key} has the unknown value type {code}"))),
                }
            };
        }
        Ok(numbers!(read_number))
    }
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        macro_rules! len {
            ($($code:literal $name:ident $type:ty),*) => {
                match self {
                    $(Self::$name(items) => items.len(),)*
                    Self::Bool(items) => items.len(),
                    Self::String(items) => items.len(),
                    Self::Array(items) => items.len(),
                }
            };
        }
        numbers!(len)
    }

    /// True without elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn read<R: Read>(cursor: &mut Cursor<R>, key: &str, depth: u32) -> Result<Self> {
        if depth > MAX_NESTING {
            return Err(cursor.error(format!("{key} nests arrays more than {MAX_NESTING} deep")));
        }
        let code = cursor.u32(key)?;
        let count = cursor.u64(key)?;
        macro_rules! read_array {
            ($($code:literal $name:ident $type:ty),*) => {
                match code {
                    $($code => {
                        let bytes = read_block(cursor, key, count, size_of::<$type>())?;
                        let (chunks, _) = bytes.as_chunks::<{ size_of::<$type>() }>();
                        Self::$name(chunks.iter().map(|chunk| <$type>::from_le_bytes(*chunk)).collect())
                    })*
                    BOOL => Self::Bool(read_items(cursor, key, count, 1, |cursor| read_bool(cursor, key))?),
                    STRING => Self::String(read_items(cursor, key, count, 8, |cursor| cursor.string(key))?),
                    ARRAY => Self::Array(read_items(cursor, key, count, 12, |cursor| {
                        Self::read(cursor, key, depth + 1)
                    })?),
                    _ => return Err(cursor.error(format!("{key} has the unknown element type {code}"))),
                }
            };
        }
        Ok(numbers!(read_array))
    }
}

fn read_bool<R: Read>(cursor: &mut Cursor<R>, key: &str) -> Result<bool> {
    match cursor.bytes::<1>(key)?[0] {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(cursor.error(format!("{key} is a bool with the value {other}"))),
    }
}

fn read_block<R: Read>(cursor: &mut Cursor<R>, key: &str, count: u64, size: usize) -> Result<Vec<u8>> {
    let bytes = count.saturating_mul(size as u64);
    cursor.need(bytes, key)?;
    let mut buffer = vec![0; bytes as usize];
    cursor.fill(&mut buffer, key)?;
    Ok(buffer)
}

/// `count` items that take at least `min_bytes` each in the file.
fn read_items<R: Read, T>(
    cursor: &mut Cursor<R>,
    key: &str,
    count: u64,
    min_bytes: u64,
    mut read: impl FnMut(&mut Cursor<R>) -> Result<T>,
) -> Result<Vec<T>> {
    cursor.need(count.saturating_mul(min_bytes), key)?;
    let mut items = Vec::with_capacity(count as usize);
    for _ in 0..count {
        items.push(read(cursor)?);
    }
    Ok(items)
}
