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
/// A longer body is parsed with other requests moved off the thread, bytes.
const LONG_BODY: usize = 256 * 1024;
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
        if self.0.len() > LONG_BODY { tokio::task::block_in_place(|| self.parse()) } else { self.parse() }
    }

    fn parse<T: DeserializeOwned>(&self) -> ApiResult<T> {
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

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;
    use octavo_protocol::{ChatFields, CompletionFields, RefusedFields, SamplingFields, TokenizeRequest};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    const BODY: &str = r#"{"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "h\u00e9"}]},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}], "n": 2, "stop": ["a"],
        "prompt": [[1, 2], [3]], "temperature": 0.5, "logit_bias": {"5": -1e2}, "stream_options": {"include_usage":
        true}, "chat_template_kwargs": {"x": [1, null]}, "max_tokens": 16, "seed": -1, "stream": false}"#;

    /// Every view of the body is a value or a 400.
    fn read(bytes: Vec<u8>) {
        let body = JsonBody(bytes.into());
        let errors = [
            body.view::<SamplingFields>().err(),
            body.view::<ChatFields>().err(),
            body.view::<CompletionFields>().err(),
            body.view::<RefusedFields>().err(),
            body.view::<TokenizeRequest>().err(),
        ];
        for error in errors.into_iter().flatten() {
            assert_eq!(error.into_response().status(), StatusCode::BAD_REQUEST);
        }
    }

    #[test]
    fn damaged_bodies_are_refused_and_never_panic() {
        let mut random = StdRng::seed_from_u64(1);
        let spare = br#"{}[]",:0123456789eE+-.\ud800nulltruefalse"#;
        for _ in 0..3_000 {
            let mut bytes = BODY.as_bytes().to_vec();
            for _ in 0..random.random_range(1..6) {
                let at = random.random_range(0..bytes.len());
                match random.random_range(0..4) {
                    0 => bytes[at] = random.random(),
                    1 => bytes[at] = spare[random.random_range(0..spare.len())],
                    2 => bytes.insert(at, spare[random.random_range(0..spare.len())]),
                    _ => drop(bytes.drain(at..(at + random.random_range(1..20)).min(bytes.len()))),
                }
                if bytes.is_empty() {
                    break;
                }
            }
            read(bytes);
        }
    }

    #[test]
    fn a_lone_surrogate_is_refused() {
        let body = JsonBody(Bytes::from_static(br#"{"prompt": "x\ud800"}"#));
        assert_eq!(
            body.view::<CompletionFields>().unwrap_err().into_response().status(),
            StatusCode::BAD_REQUEST
        );
    }
}
