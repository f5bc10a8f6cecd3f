//! The crate's error.

use std::path::{Path, PathBuf};

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;

/// What is wrong, in which file, and at which byte where that is known.
#[derive(Debug)]
pub struct Error {
    path: PathBuf,
    offset: Option<u64>,
    message: String,
    source: Option<std::io::Error>,
}

impl Error {
    pub(crate) fn at(path: &Path, offset: u64, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), offset: Some(offset), message: message.into(), source: None }
    }

    pub(crate) fn of(path: &Path, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), offset: None, message: message.into(), source: None }
    }

    pub(crate) fn io(path: &Path, offset: Option<u64>, source: std::io::Error) -> Self {
        Self { path: path.to_owned(), offset, message: source.to_string(), source: Some(source) }
    }

    /// The file at fault.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Byte offset of the fault in the file, where it has one.
    pub fn offset(&self) -> Option<u64> {
        self.offset
    }

    /// The operating system's error, if reading itself failed.
    pub fn io_error(&self) -> Option<&std::io::Error> {
        self.source.as_ref()
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(offset) = self.offset {
            write!(f, ", byte {offset}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}
