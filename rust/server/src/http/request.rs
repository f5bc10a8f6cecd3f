//! Reading a JSON request body, with the place of the first mistake in it.

use std::time::Duration;

use axum::body::{Bytes, to_bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;
use serde_path_to_error::{Path, Segment};

use super::error::{ApiError, ApiResult};
use super::state::AppState;

/// Longest time that a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(120);
/// Longest quotation of a value in a message, bytes.
const MAX_QUOTE: usize = 200;

/// A request body that says it is JSON, whole and within the size limit.
#[derive(Debug)]
pub struct JsonBody(Bytes);

impl FromRequest<AppState> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &AppState) -> ApiResult<Self> {
        if !is_json(request.headers()) {
            let message = "Only 'application/json' is accepted; set the Content-Type header to it";
            return Err(ApiError::malformed(None, message));
        }
        let limit = state.config.max_body_bytes;
        let too_large = || {
            let message = format!("the request body is longer than {limit} bytes; shorten it");
            ApiError::plain(StatusCode::PAYLOAD_TOO_LARGE, message)
        };
        if announced_length(request.headers()).is_some_and(|length| length > limit as u64) {
            return Err(too_large());
        }
        let body = tokio::time::timeout(BODY_TIMEOUT, to_bytes(request.into_body(), limit)).await;
        let late = || ApiError::plain(StatusCode::REQUEST_TIMEOUT, "the request body did not arrive in time");
        match body.map_err(|_elapsed| late())? {
            Ok(bytes) => Ok(Self(bytes)),
            Err(error) if is_length_limit(&error) => Err(too_large()),
            Err(error) => {
                Err(ApiError::malformed(None, format!("the request body could not be read: {error}")))
            }
        }
    }
}

impl JsonBody {
    /// Its length, bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The body as one of its views.
    ///
    /// # Errors
    /// 400 with the dotted path of the field that does not fit.
    pub fn view<T: DeserializeOwned>(&self) -> ApiResult<T> {
        let mut reader = serde_json::Deserializer::from_slice(&self.0);
        let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let path = error.path().clone();
            misfit(&path, &error.into_inner())
        })?;
        reader.end().map_err(|error| misfit_at("body".to_owned(), &error))?;
        Ok(value)
    }
}

fn misfit(path: &Path, error: &serde_json::Error) -> ApiError {
    let mut dotted = vec!["body".to_owned()];
    for segment in path {
        match segment {
            Segment::Seq { index } => dotted.push(index.to_string()),
            Segment::Map { key } | Segment::Enum { variant: key } => dotted.push(key.clone()),
            Segment::Unknown => {}
        }
    }
    misfit_at(dotted.join("."), error)
}

fn misfit_at(path: String, error: &serde_json::Error) -> ApiError {
    let mut message = error.to_string();
    if message.len() > 2 * MAX_QUOTE {
        message = message.chars().take(MAX_QUOTE).chain("...".chars()).collect();
    }
    let path = if error.is_data() { path } else { "body".to_owned() };
    ApiError::malformed(Some(path.clone()), format!("{path}: {message}"))
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

fn announced_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn is_length_limit(error: &axum::Error) -> bool {
    std::error::Error::source(error)
        .is_some_and(<dyn std::error::Error>::is::<http_body_util::LengthLimitError>)
}
