//! `GET /health`, `/ping` and `/ready`: 200 while the server takes requests.

use axum::extract::State;
use axum::http::StatusCode;

use crate::http::error::{ApiError, ApiResult};
use crate::http::state::AppState;

/// 200 with an empty body, or 503 with the reason.
pub async fn health(State(state): State<AppState>) -> ApiResult<StatusCode> {
    if let Some(error) = state.client.engine().failure() {
        return Err(ApiError::unavailable(error.message()));
    }
    if state.is_draining() {
        return Err(ApiError::unavailable("the server is shutting down"));
    }
    Ok(StatusCode::OK)
}
