//! The crate's one error type; [`Error::exit_code`] is what the shell sees.

/// What went wrong. The message says what, where and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The command line or an input file: exit code 2.
    Invalid(String),
    /// The server under test cannot be measured: exit code 1.
    Server(String),
    /// The core or its executor broke a law: exit code 3.
    Violation(String),
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A mistake in the command line or in an input file.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }

    /// A server that cannot be measured.
    pub fn server(message: impl Into<String>) -> Self {
        Self::Server(message.into())
    }

    /// A broken law.
    pub fn violation(message: impl Into<String>) -> Self {
        Self::Violation(message.into())
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Server(_) => 1,
            Self::Invalid(_) => 2,
            Self::Violation(_) => 3,
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Invalid(message) | Self::Server(message) | Self::Violation(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {}
