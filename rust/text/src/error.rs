//! The crate's error.

use std::path::{Path, PathBuf};

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;

/// What sort of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The caller's mistake: HTTP 400, `ValueError`.
    Invalid,
    /// A file or folder is not there: `OSError`.
    NotFound,
    /// The model's files are damaged, or of a sort that cannot be read.
    Model,
    /// A fault of ours: HTTP 500.
    Internal,
}

/// Everything that can go wrong between strings and tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A caller's mistake in the request field `param`.
    Invalid {
        /// The request field at fault.
        param: &'static str,
        /// What is wrong and what to do.
        message: String,
    },
    /// The text cannot fit the limit on tokens.
    TooLong {
        /// Tokens that the text has at least.
        tokens: usize,
        /// The limit that the caller set.
        max_tokens: usize,
    },
    /// The chat template refused the conversation through `raise_exception`.
    Refused(String),
    /// The chat template failed on these messages, or went over a limit on what it may do.
    Template(String),
    /// A file or folder is not there.
    NotFound {
        /// The file or folder.
        path: PathBuf,
        /// What is missing and what to do.
        message: String,
    },
    /// A model's file is damaged or of a sort that cannot be read.
    Model {
        /// The file, where one is known.
        path: Option<PathBuf>,
        /// What is wrong and what to do.
        message: String,
    },
    /// A fault of ours.
    Internal(String),
}

impl Error {
    /// What sort of failure it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Invalid { .. } | Self::TooLong { .. } | Self::Refused(_) | Self::Template(_) => {
                Kind::Invalid
            }
            Self::NotFound { .. } => Kind::NotFound,
            Self::Model { .. } => Kind::Model,
            Self::Internal(_) => Kind::Internal,
        }
    }

    /// The request field at fault, where there is one.
    pub fn param(&self) -> Option<&'static str> {
        match self {
            Self::Invalid { param, .. } => Some(param),
            Self::Refused(_) | Self::Template(_) => Some("messages"),
            _ => None,
        }
    }

    pub(crate) fn invalid(param: &'static str, message: impl Into<String>) -> Self {
        Self::Invalid { param, message: message.into() }
    }

    pub(crate) fn not_found(path: &Path, message: impl Into<String>) -> Self {
        Self::NotFound { path: path.to_owned(), message: message.into() }
    }

    /// A fault in model data whose file the caller adds with [`at`](Self::at).
    pub(crate) fn model(message: impl Into<String>) -> Self {
        Self::Model { path: None, message: message.into() }
    }

    /// Names the file of a model error that has none yet.
    pub(crate) fn at(self, file: &Path) -> Self {
        match self {
            Self::Model { path: None, message } => Self::Model { path: Some(file.to_owned()), message },
            other => other,
        }
    }
}

impl From<octavo_gguf::Error> for Error {
    fn from(error: octavo_gguf::Error) -> Self {
        match error.io_error().map(std::io::Error::kind) {
            Some(std::io::ErrorKind::NotFound) => Self::not_found(error.path(), "there is no such file"),
            _ => Self::Model { path: None, message: error.to_string() },
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong { tokens, max_tokens } => {
                write!(f, "the text has at least {tokens} tokens; at most {max_tokens} are allowed")
            }
            Self::Refused(message) => write!(f, "the model's chat template refuses the messages: {message}"),
            Self::Template(message) => write!(f, "the chat template failed: {message}"),
            Self::NotFound { path, message } | Self::Model { path: Some(path), message } => {
                write!(f, "{}: {message}", path.display())
            }
            Self::Invalid { message, .. } | Self::Model { message, .. } | Self::Internal(message) => {
                f.write_str(message)
            }
        }
    }
}

impl std::error::Error for Error {}
