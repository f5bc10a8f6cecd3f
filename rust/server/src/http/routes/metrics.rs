//! `GET /metrics`.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use crate::http::error::ApiResult;
use crate::http::state::AppState;

/// All metrics in Prometheus' text format.
pub async fn metrics(State(state): State<AppState>) -> ApiResult<Response> {
    let text = state.client.engine().read_metrics().encode()?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}
