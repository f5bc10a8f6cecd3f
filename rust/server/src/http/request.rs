//! Reading a JSON request body, with the place of the first mistake in it.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use bytes::BytesMut;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use serde_path_to_error::{Path, Segment};
use tokio::time::{Instant, timeout_at};

use super::bodies::{Bodies, Room};
use super::error::{ApiError, ApiResult};
use super::excerpt::excerpt;
use super::state::AppState;

/// Longest time that a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(120);
/// A body up to this length is held without room for it, bytes: as many as there
/// are connections fit in memory, and they never wait for long bodies.
const SMALL_BODY: usize = 64 * 1024;
/// A longer body is parsed with other requests moved off the thread, bytes.
const LONG_BODY: usize = 256 * 1024;

/// A request body that says it is JSON, whole and within the size limit.
#[derive(Debug)]
pub struct JsonBody {
    bytes: Bytes,
    /// Held as long as the bytes are.
    _room: Option<Room>,
}

impl FromRequest<AppState> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &AppState) -> ApiResult<Self> {
        if let Some(encoding) = foreign_encoding(request.headers()) {
            let encoding = excerpt(&encoding).into_owned();
            let message = format!(
                "a body with Content-Encoding {encoding} is not read; send it as it is, without that header"
            );
            return Err(ApiError::plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        if !is_json(request.headers()) {
            let message = "Only 'application/json' is accepted; set the Content-Type header to it";
            return Err(ApiError::malformed(None, message));
        }
        let announced = announced_length(request.headers());
        Self::read(request.into_body(), announced, &state.bodies, Instant::now() + BODY_TIMEOUT).await
    }
}

impl JsonBody {
    async fn read(
        mut body: Body,
        announced: Option<u64>,
        bodies: &Bodies,
        deadline: Instant,
    ) -> ApiResult<Self> {
        let limit = bodies.max_body_bytes();
        let too_large = || {
            let message = format!("the request body is longer than {limit} bytes; shorten it");
            ApiError::plain(StatusCode::PAYLOAD_TOO_LARGE, message)
        };
        if announced.is_some_and(|length| length > limit as u64) {
            return Err(too_large());
        }
        let late =
            |_| ApiError::plain(StatusCode::REQUEST_TIMEOUT, "the request body did not arrive in time");
        let (mut bytes, mut room) = (BytesMut::new(), None);
        while let Some(frame) = timeout_at(deadline, body.frame()).await.map_err(late)? {
            let frame = frame.map_err(|error| {
                ApiError::malformed(None, format!("the request body could not be read: {error}"))
            })?;
            let Ok(data) = frame.into_data() else { continue };
            let length = bytes.len() + data.len();
            if length > limit {
                return Err(too_large());
            }
            if room.is_none() && length > SMALL_BODY {
                let most = announced.map_or(limit, |length| length as usize);
                let full = |_| ApiError::unavailable("too many long request bodies at once; retry later");
                room = timeout_at(deadline, bodies.room(most)).await.map_err(full)?;
                bytes.reserve(most.saturating_sub(bytes.len()));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(Self { bytes: bytes.freeze(), _room: room })
    }

    /// Its length, bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The body as one of its views.
    ///
    /// # Errors
    /// 400 with the dotted path of the field that does not fit.
    pub fn view<T: DeserializeOwned>(&self) -> ApiResult<T> {
        if self.len() > LONG_BODY { tokio::task::block_in_place(|| self.parse()) } else { self.parse() }
    }

    fn parse<T: DeserializeOwned>(&self) -> ApiResult<T> {
        if self.bytes.trim_ascii_start().first() != Some(&b'{') {
            return Err(ApiError::malformed(Some("body".to_owned()), "body: must be a JSON object"));
        }
        let mut reader = serde_json::Deserializer::from_slice(&self.bytes);
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
            Segment::Map { key } | Segment::Enum { variant: key } => dotted.push(excerpt(key).into_owned()),
            Segment::Unknown => {}
        }
    }
    misfit_at(dotted.join("."), error)
}

fn misfit_at(path: String, error: &serde_json::Error) -> ApiError {
    let path = if error.is_data() { path } else { "body".to_owned() };
    let message = format!("{path}: {}", plain_words(&error.to_string()));
    ApiError::malformed(Some(path), message)
}

/// A message of the JSON reader, in the terms of JSON rather than of Rust's types.
fn plain_words(message: &str) -> String {
    let Some((found, rest)) = message.rsplit_once(", expected ") else {
        return excerpt(message).into_owned();
    };
    let (expected, place) = rest.rfind(" at line ").map_or((rest, ""), |at| rest.split_at(at));
    let expected = match expected {
        "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number",
        "f32" | "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "an object",
        structure if structure.starts_with("struct ") => "an object",
        other => other,
    };
    let found = match found {
        "invalid type: sequence" => "invalid type: list",
        // A list in place of a struct is read until its length does not fit.
        length if length.starts_with("invalid length") && expected == "an object" => "invalid type: list",
        "invalid type: map" => "invalid type: object",
        other => other,
    };
    format!("{}, expected {expected}{place}", excerpt(found))
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// The body's encoding, if it is another than identity.
fn foreign_encoding(headers: &HeaderMap) -> Option<String> {
    let mut values = headers.get_all(header::CONTENT_ENCODING).iter();
    let foreign = values.find(|value| !value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity"))?;
    Some(String::from_utf8_lossy(foreign.as_bytes()).into_owned())
}

fn announced_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
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

    fn whole(bytes: Vec<u8>) -> JsonBody {
        JsonBody { bytes: bytes.into(), _room: None }
    }

    #[tokio::test]
    async fn long_bodies_wait_for_room_and_small_ones_do_not() {
        let bodies = Bodies::new(100 * 1024);
        let long = || Body::from(vec![b' '; 88 * 1024]);
        let soon = || Instant::now() + Duration::from_millis(20);
        let mut held = Vec::new();
        // Not announced, so that each takes room for the longest.
        for _ in 0..8 {
            held.push(JsonBody::read(long(), None, &bodies, soon()).await.unwrap());
        }
        let refused = JsonBody::read(long(), None, &bodies, soon()).await.unwrap_err().into_response();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(refused.headers().contains_key(header::RETRY_AFTER));
        let small = Body::from(vec![b' '; SMALL_BODY]);
        assert_eq!(JsonBody::read(small, None, &bodies, soon()).await.unwrap().len(), SMALL_BODY);
        let patient = Instant::now() + Duration::from_secs(30);
        let waiting = JsonBody::read(long(), None, &bodies, patient);
        let (body, ()) = tokio::join!(waiting, async { drop(held.pop()) });
        assert_eq!(body.unwrap().len(), 88 * 1024);
    }

    #[tokio::test]
    async fn a_body_that_does_not_arrive_is_408() {
        let body = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        let soon = Instant::now() + Duration::from_millis(20);
        let error = JsonBody::read(body, None, &Bodies::new(1000), soon).await.unwrap_err();
        assert_eq!(error.into_response().status(), StatusCode::REQUEST_TIMEOUT);
    }

    /// Every view of the body is a value or a 400.
    fn read(bytes: Vec<u8>) {
        let body = whole(bytes);
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
        let body = whole(br#"{"prompt": "x\ud800"}"#.to_vec());
        assert_eq!(
            body.view::<CompletionFields>().unwrap_err().into_response().status(),
            StatusCode::BAD_REQUEST
        );
    }
}
