//! A name for each request: the client's `X-Request-Id`, or a random one.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

use crate::http::error::Fault;
use crate::http::state::AppState;

const HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// Longest id taken from a client, bytes.
const MAX_LEN: usize = 128;

/// The request's name, as an extension.
#[derive(Clone, Debug)]
pub struct RequestId {
    /// The name.
    pub id: Arc<str>,
    /// The client chose it.
    pub from_client: bool,
}

impl RequestId {
    /// The id to answer with; `asked` is the body's own `request_id`, which
    /// yields to the header.
    pub fn or(&self, asked: Option<&str>) -> Arc<str> {
        match asked {
            Some(asked) if !self.from_client && is_acceptable(asked) => asked.into(),
            _ => Arc::clone(&self.id),
        }
    }
}

/// Names the request, and the response where the server is asked to.
pub async fn name(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    let given =
        request.headers().get(&HEADER).and_then(|value| value.to_str().ok()).filter(|id| is_acceptable(id));
    let name = match given {
        Some(id) => RequestId { id: id.into(), from_client: true },
        None => RequestId { id: format!("{:032x}", rand::random::<u128>()).into(), from_client: false },
    };
    request.extensions_mut().insert(name.clone());
    let mut response = next.run(request).await;
    if let Some(Fault(message)) = response.extensions().get() {
        tracing::error!(request_id = %name.id, "{message}");
    }
    let wanted = state.config.enable_request_id_headers || response.status().is_server_error();
    if wanted && let Ok(value) = HeaderValue::from_str(&name.id) {
        response.headers_mut().insert(HEADER, value);
    }
    response
}

fn is_acceptable(id: &str) -> bool {
    (1..=MAX_LEN).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}
