//! `POST /reset_prefix_cache`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use crate::http::error::json;
use crate::http::state::AppState;

/// `{"success": true}`, or false when running requests still hold some of it.
pub async fn reset(State(state): State<AppState>) -> Response {
    let success = state.client.engine().reset_prefix_cache();
    json(StatusCode::OK, &serde_json::json!({ "success": success }))
}
