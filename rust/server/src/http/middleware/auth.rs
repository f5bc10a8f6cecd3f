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

/// Who a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenant(pub u64);

impl Tenant {
    /// The tenant of an API key or a user's name.
    pub fn new(name: &str) -> Self {
        let hash: [u8; 32] = Sha256::digest(name.as_bytes()).into();
        let mut first = [0; 8];
        first.copy_from_slice(&hash[..8]);
        Self(u64::from_le_bytes(first))
    }
}

/// The number of the tenant of an API key or a user's name, as requests have it.
pub fn tenant(name: &str) -> u64 {
    Tenant::new(name).0
}

/// Answers 401 to guarded requests without an accepted key. Of several keys,
/// each is a tenant of its own.
pub async fn check(State(keys): State<ApiKeys>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let guarded =
        request.method() != Method::OPTIONS && GUARDED.iter().any(|prefix| path.starts_with(prefix));
    if guarded {
        let Some(key) = bearer(request.headers()).filter(|key| keys.accepts(key)) else {
            return json(StatusCode::UNAUTHORIZED, &serde_json::json!({ "error": "Unauthorized" }));
        };
        if keys.0.len() > 1 {
            let tenant = Tenant::new(key);
            request.extensions_mut().insert(tenant);
        }
    }
    next.run(request).await
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, key) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
}
