//! `GET /load`: generation calls in flight.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use crate::http::error::json;
use crate::http::state::AppState;

/// `{"server_load": N}`.
pub async fn load(State(state): State<AppState>) -> Response {
    json(StatusCode::OK, &serde_json::json!({ "server_load": state.load() }))
}
