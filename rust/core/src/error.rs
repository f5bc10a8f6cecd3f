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
    retry_after_s: Option<u32>,
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A caller's mistake in `param`.
    pub fn invalid(param: &'static str, message: impl Into<String>) -> Self {
        Self { param: Some(param), ..Self::new(Kind::Invalid, message.into()) }
    }

    /// A limit that is reached for now.
    pub fn overloaded(message: impl Into<String>) -> Self {
        Self::new(Kind::Overloaded, message.into())
    }

    /// A fault of ours.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Kind::Internal, message.into())
    }

    fn new(kind: Kind, message: String) -> Self {
        Self { kind, param: None, message, retry_after_s: None }
    }

    /// The same, with the seconds after which it is worth while to try again.
    #[must_use]
    pub fn with_retry_after(self, seconds: u32) -> Self {
        Self { retry_after_s: Some(seconds), ..self }
    }

    /// What sort of failure it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The request field at fault, where there is one.
    pub fn param(&self) -> Option<&'static str> {
        self.param
    }

    /// Seconds after which it is worth while to try again, where they are known.
    pub fn retry_after_s(&self) -> Option<u32> {
        self.retry_after_s
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
