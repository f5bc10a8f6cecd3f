//! Little-endian primitives over a reader of known length.

use std::io::Read;
use std::path::Path;

use crate::error::{Error, Result};

/// Most bytes before the tensor data. The largest vocabularies take about 30 MB.
pub(crate) const MAX_HEADER_BYTES: u64 = 256 << 20;
/// Longest string value (chat templates are some 20 kB).
const MAX_STRING_BYTES: u64 = 16 << 20;

/// Reads forward and knows where it is.
pub(crate) struct Cursor<'a, R> {
    reader: R,
    position: u64,
    end: u64,
    path: &'a Path,
}

impl<'a, R: Read> Cursor<'a, R> {
    /// A cursor at byte 0 of `reader`, which has `len` bytes.
    pub(crate) fn new(reader: R, len: u64, path: &'a Path) -> Self {
        Self { reader, position: 0, end: len, path }
    }

    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    pub(crate) fn path(&self) -> &'a Path {
        self.path
    }

    /// Bytes that may still be read: to the end of file or of the largest header.
    pub(crate) fn remaining(&self) -> u64 {
        self.end.min(MAX_HEADER_BYTES).saturating_sub(self.position)
    }

    /// An error at the current position.
    pub(crate) fn error(&self, message: impl Into<String>) -> Error {
        Error::at(self.path, self.position, message)
    }

    /// Fails unless `bytes` more can be read, so nothing is allocated for what is not there.
    pub(crate) fn need(&self, bytes: u64, what: &str) -> Result<()> {
        if bytes <= self.remaining() {
            return Ok(());
        }
        Err(self.error(if self.position.saturating_add(bytes) > self.end {
            format!("{what} needs {bytes} bytes but the file ends {} bytes further", self.end - self.position)
        } else {
            format!(
                "{what} needs {bytes} bytes, which exceeds the largest header of {MAX_HEADER_BYTES} bytes"
            )
        }))
    }

    /// The next `buffer.len()` bytes.
    pub(crate) fn fill(&mut self, buffer: &mut [u8], what: &str) -> Result<()> {
        self.need(buffer.len() as u64, what)?;
        self.reader.read_exact(buffer).map_err(|error| Error::io(self.path, Some(self.position), error))?;
        self.position += buffer.len() as u64;
        Ok(())
    }

    /// The next `N` bytes.
    pub(crate) fn bytes<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut buffer = [0; N];
        self.fill(&mut buffer, what)?;
        Ok(buffer)
    }

    pub(crate) fn u32(&mut self, what: &str) -> Result<u32> {
        self.bytes(what).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, what: &str) -> Result<u64> {
        self.bytes(what).map(u64::from_le_bytes)
    }

    /// A string: its length as u64, then that many bytes of UTF-8.
    pub(crate) fn string(&mut self, what: &str) -> Result<String> {
        let start = self.position;
        let len = self.u64(what)?;
        if len > MAX_STRING_BYTES {
            let message = format!("{what} is {len} bytes long, more than the limit of {MAX_STRING_BYTES}");
            return Err(Error::at(self.path, start, message));
        }
        self.need(len, what)?;
        let mut buffer = vec![0; len as usize];
        self.fill(&mut buffer, what)?;
        String::from_utf8(buffer).map_err(|error| {
            Error::at(self.path, start, format!("{what} is not UTF-8: {}", error.utf8_error()))
        })
    }
}
