//! Bearer keys.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use crate::http::error::json;

/// Paths that ask for a key, where keys are set. The rest is open.
const GUARDED: [&str; 5] = ["/v1", "/v2", "/inference", "/cohere", "/reset_prefix_cache"];

/// The SHA-256 of each accepted key.
#[derive(Clone, Debug)]
pub struct ApiKeys(Arc<[[u8; 32]]>);

impl ApiKeys {
    /// Accepts `keys`.
    pub fn new(keys: &[String]) -> Self {
        Self(keys.iter().map(|key| Sha256::digest(key.as_bytes()).into()).collect())
    }

    /// Compares with every key, in a time that does not depend on which matches.
    fn accepts(&self, key: &str) -> bool {
        let hash: [u8; 32] = Sha256::digest(key.as_bytes()).into();
        let matches = self.0.iter().fold(Choice::from(0), |found, known| found | known.ct_eq(&hash));
        matches.into()
    }
}

/// Answers 401 to guarded requests without an accepted key.
pub async fn check(State(keys): State<ApiKeys>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let guarded =
        request.method() != Method::OPTIONS && GUARDED.iter().any(|prefix| path.starts_with(prefix));
    if guarded && !bearer(request.headers()).is_some_and(|key| keys.accepts(key)) {
        return json(StatusCode::UNAUTHORIZED, &serde_json::json!({ "error": "Unauthorized" }));
    }
    next.run(request).await
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, key) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
}
