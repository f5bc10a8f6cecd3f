//! Opening a file.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::value::{Array, Value};

const MAX_METADATA: u64 = 1 << 16;
const MAX_TENSORS: u64 = 1 << 20;
const MAX_ALIGNMENT: u64 = 1 << 20;
const DEFAULT_ALIGNMENT: u64 = 32;

/// A file's metadata and tensor table.
#[derive(Clone, Debug)]
pub struct Gguf {
    path: PathBuf,
    version: u32,
    metadata: Vec<(String, Value)>,
    metadata_index: HashMap<String, usize>,
    tensors: Vec<Tensor>,
    tensor_index: HashMap<String, usize>,
}

impl Gguf {
    /// Reads the header of the file at `path`. Fails if it cannot be read, is not a
    /// GGUF file of version 2 or 3 in little-endian order, is damaged, cut short, or
    /// over a limit.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let io = |error| Error::io(path, None, error);
        let file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        if !metadata.is_file() {
            return Err(Error::of(path, "is not a regular file"));
        }
        Self::read(BufReader::with_capacity(1 << 18, file), metadata.len(), path)
    }

    /// Reads from `reader`, which stands for a file of `len` bytes; `path` names it in messages.
    pub fn read(reader: impl Read, len: u64, path: &Path) -> Result<Self> {
        let mut cursor = Cursor::new(reader, len, path);
        let version = read_version(&mut cursor)?;
        let tensor_count = read_count(&mut cursor, "tensors", MAX_TENSORS)?;
        let metadata_count = read_count(&mut cursor, "metadata values", MAX_METADATA)?;
        let mut gguf = Self {
            path: path.to_owned(),
            version,
            metadata: Vec::new(),
            metadata_index: HashMap::new(),
            tensors: Vec::new(),
            tensor_index: HashMap::new(),
        };
        for index in 0..metadata_count {
            let start = cursor.position();
            let key = cursor.string("a metadata key")?;
            let value = Value::read(&mut cursor, &key)?;
            if gguf.metadata_index.insert(key.clone(), index).is_some() {
                return Err(Error::at(path, start, format!("the metadata key {key} is there twice")));
            }
            gguf.metadata.push((key, value));
        }
        let alignment = gguf.alignment()?;
        for index in 0..tensor_count {
            let start = cursor.position();
            let tensor = Tensor::read(&mut cursor)?;
            if gguf.tensor_index.insert(tensor.name.clone(), index).is_some() {
                return Err(Error::at(path, start, format!("the tensor {} is there twice", tensor.name)));
            }
            gguf.tensors.push(tensor);
        }
        let data_start = cursor.position().next_multiple_of(alignment);
        for tensor in &mut gguf.tensors {
            place(tensor, data_start, alignment, len)
                .map_err(|message| Error::at(path, data_start, message))?;
        }
        Ok(gguf)
    }

    /// The file that was read.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The value of a metadata key.
    pub fn metadata(&self, key: &str) -> Option<&Value> {
        self.metadata_index.get(key).map(|index| &self.metadata[*index].1)
    }

    /// All metadata in the file's order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.metadata.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// All tensors in the file's order.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensor_index.get(name).map(|index| &self.tensors[*index])
    }

    /// A string, or `None` if the key is missing. A value of another type is an error, here and below.
    pub fn str(&self, key: &str) -> Result<Option<&str>> {
        self.get(key, "a string", |value| match value {
            Value::String(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// An integer of any width that fits.
    pub fn u32(&self, key: &str) -> Result<Option<u32>> {
        self.get(key, "an integer from 0 to 4294967295", |value| {
            value.as_i128().and_then(|number| u32::try_from(number).ok())
        })
    }

    /// An integer of any width that fits.
    pub fn u64(&self, key: &str) -> Result<Option<u64>> {
        self.get(key, "an integer from 0 up", |value| {
            value.as_i128().and_then(|number| u64::try_from(number).ok())
        })
    }

    /// A float of either width.
    pub fn f32(&self, key: &str) -> Result<Option<f32>> {
        self.get(key, "a float", |value| match value {
            Value::F32(number) => Some(*number),
            Value::F64(number) => Some(*number as f32),
            _ => None,
        })
    }

    /// A bool.
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.get(key, "a bool", |value| match value {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        })
    }

    /// An array of any element type.
    pub fn array(&self, key: &str) -> Result<Option<&Array>> {
        self.get(key, "an array", |value| match value {
            Value::Array(array) => Some(array),
            _ => None,
        })
    }

    /// An array of strings.
    pub fn strings(&self, key: &str) -> Result<Option<&[String]>> {
        self.get(key, "an array of strings", |value| match value {
            Value::Array(Array::String(items)) => Some(items.as_slice()),
            _ => None,
        })
    }

    /// An array of f32.
    pub fn floats(&self, key: &str) -> Result<Option<&[f32]>> {
        self.get(key, "an array of f32", |value| match value {
            Value::Array(Array::F32(items)) => Some(items.as_slice()),
            _ => None,
        })
    }

    fn get<'a, T>(
        &'a self,
        key: &str,
        wanted: &str,
        take: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.metadata(key) else { return Ok(None) };
        take(value).map(Some).ok_or_else(|| {
            let found = value.type_name();
            Error::of(&self.path, format!("the metadata key {key} must be {wanted}; its type is {found}"))
        })
    }

    fn alignment(&self) -> Result<u64> {
        let alignment = self.u64("general.alignment")?.unwrap_or(DEFAULT_ALIGNMENT);
        if alignment.is_power_of_two() && alignment <= MAX_ALIGNMENT {
            return Ok(alignment);
        }
        let message =
            format!("general.alignment is {alignment}; it must be a power of two up to {MAX_ALIGNMENT}");
        Err(Error::of(&self.path, message))
    }
}

fn read_version<R: Read>(cursor: &mut Cursor<R>) -> Result<u32> {
    let magic: [u8; 4] = cursor.bytes("the magic number")?;
    if &magic != b"GGUF" {
        return Err(Error::at(cursor.path(), 0, "is not a GGUF file: it does not begin with \"GGUF\""));
    }
    let version = cursor.u32("the version")?;
    match version {
        2 | 3 => Ok(version),
        _ if (1..=3).contains(&version.swap_bytes()) => {
            Err(Error::at(cursor.path(), 4, "is a big-endian GGUF file; convert it to little-endian"))
        }
        _ => Err(Error::at(
            cursor.path(),
            4,
            format!("has GGUF version {version}; versions 2 and 3 can be read"),
        )),
    }
}

fn read_count<R: Read>(cursor: &mut Cursor<R>, what: &str, limit: u64) -> Result<usize> {
    let start = cursor.position();
    let count = cursor.u64(what)?;
    if count > limit {
        return Err(Error::at(
            cursor.path(),
            start,
            format!("has {count} {what}, more than the limit of {limit}"),
        ));
    }
    Ok(count as usize)
}

/// Makes the tensor's offset absolute and checks that it lies within the file.
fn place(
    tensor: &mut Tensor,
    data_start: u64,
    alignment: u64,
    file_len: u64,
) -> std::result::Result<(), String> {
    let Tensor { name, offset, byte_len, .. } = tensor;
    if !offset.is_multiple_of(alignment) {
        return Err(format!(
            "tensor {name} has the offset {offset}, not a multiple of the alignment {alignment}"
        ));
    }
    let start = data_start.checked_add(*offset);
    let end = start.and_then(|start| start.checked_add(*byte_len));
    match (start, end) {
        (Some(start), Some(end)) if end <= file_len => *offset = start,
        _ => {
            return Err(format!(
                "tensor {name} of {byte_len} bytes at data offset {offset} reaches past the end of the file \
                 ({file_len} bytes); the file may be cut short: fetch it again"
            ));
        }
    }
    Ok(())
}
