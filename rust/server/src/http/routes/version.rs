//! `GET /version`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use crate::http::error::json;
use crate::http::state::AppState;

/// `{"version": "..."}`.
pub async fn version(State(state): State<AppState>) -> Response {
    json(StatusCode::OK, &serde_json::json!({ "version": state.config.version }))
}
