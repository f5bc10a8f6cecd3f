//! The one place that turns errors into HTTP replies.

use std::borrow::Cow;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use octavo_core::{Error, Kind};
use octavo_protocol::{ErrorBody, ErrorObject};

use super::excerpt::excerpt;

/// Seconds after which a refused client may try again, where nothing better is known.
const RETRY_AFTER_S: u32 = 1;

/// An error on its way to the client.
#[derive(Clone, Debug)]
pub struct ApiError {
    status: StatusCode,
    kind: Cow<'static, str>,
    param: Option<Cow<'static, str>>,
    message: String,
    retry_after_s: u32,
}

/// A fault of ours that a response tells of, for the log.
#[derive(Clone, Debug)]
pub struct Fault(pub String);

/// A handler's result.
pub type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind: kind.into(), param: None, message: message.into(), retry_after_s: RETRY_AFTER_S }
    }

    /// A value that the API does not allow in field `param`.
    pub fn invalid(param: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let error = Self::new(StatusCode::BAD_REQUEST, "BadRequestError", message);
        Self { param: Some(param.into()), ..error }
    }

    /// A body that is not what the route takes; `path` is dotted.
    pub fn malformed(path: Option<String>, message: impl Into<String>) -> Self {
        let error = Self::new(StatusCode::BAD_REQUEST, "Bad Request", message);
        Self { param: path.map(Cow::Owned), ..error }
    }

    /// A name that nothing is served under.
    pub fn unknown_model(model: &str, served: &[String]) -> Self {
        let (asked, served) = (excerpt(model), served.join(", "));
        let message = format!("the model {asked:?} does not exist; served here: {served}");
        let error = Self::new(StatusCode::NOT_FOUND, "NotFoundError", message);
        Self { param: Some("model".into()), ..error }
    }

    /// An error that is named after its status.
    pub fn plain(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, status.canonical_reason().unwrap_or("Error"), message)
    }

    /// Too much to do, or no longer willing.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::plain(StatusCode::SERVICE_UNAVAILABLE, message)
    }

    /// A fault of ours.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError", message)
    }

    /// The JSON body.
    pub fn body(self) -> ErrorBody {
        let Self { status, kind, param, message, .. } = self;
        ErrorBody { error: ErrorObject { message, kind, param, code: status.as_u16() } }
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        match error.kind() {
            Kind::Invalid => {
                let param = error.param().map(Cow::Borrowed);
                Self { param, ..Self::new(StatusCode::BAD_REQUEST, "BadRequestError", error.message()) }
            }
            Kind::Overloaded => {
                let retry_after_s = error.retry_after_s().unwrap_or(RETRY_AFTER_S);
                Self { retry_after_s, ..Self::unavailable(error.message()) }
            }
            Kind::Internal => Self::internal(error.message()),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, retry_after_s) = (self.status, self.retry_after_s);
        let fault = Fault(self.message.clone());
        let mut response = json(status, &self.body());
        if status.is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE {
            response.extensions_mut().insert(fault);
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, retry_after_s.into());
        }
        response
    }
}

/// A JSON reply.
pub fn json(status: StatusCode, value: &impl serde::Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => {
            let mut response = Response::new(Body::from(bytes));
            *response.status_mut() = status;
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(error) => {
            tracing::error!("a reply could not be written as JSON: {error}");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
