//! The crate's one error type. [`Kind`] decides the HTTP status and the Python
//! exception, each in one place elsewhere.

/// What sort of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The caller's mistake: HTTP 400, `ValueError`.
    Invalid,
    /// Over a limit now, may work later: HTTP 503 with Retry-After.
    Overloaded,
    /// A fault of ours: HTTP 500, `RuntimeError`.
    Internal,
}

/// An error with its kind, the request field it is about (if any) and a
/// message that says what, where and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    param: Option<&'static str>,
    message: String,
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A caller's mistake in `param`.
    pub fn invalid(param: &'static str, message: impl Into<String>) -> Self {
        Self { kind: Kind::Invalid, param: Some(param), message: message.into() }
    }

    /// A limit that is reached for now.
    pub fn overloaded(message: impl Into<String>) -> Self {
        Self { kind: Kind::Overloaded, param: None, message: message.into() }
    }

    /// A fault of ours.
    pub fn internal(message: impl Into<String>) -> Self {
        Self { kind: Kind::Internal, param: None, message: message.into() }
    }

    /// What sort of failure it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The request field at fault, where there is one.
    pub fn param(&self) -> Option<&'static str> {
        self.param
    }

    /// What went wrong and what to do.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
