//! `GET /kv_event_sources`: where to subscribe to what the prefix cache holds.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use crate::http::error::json;
use crate::http::state::AppState;

/// A list with one entry an engine; empty if nothing is published.
pub async fn list(State(state): State<AppState>) -> Response {
    let sources: Vec<_> = state.client.engine().kv_event_source().into_iter().collect();
    json(StatusCode::OK, &sources)
}
