//! Whether the server lives, whether to send it requests, and whether it really generates.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use octavo_core::Kind;
use tokio::time::{Instant, interval, timeout_at};

use crate::client::{GenerateRequest, Prompt, SamplingOptions};
use crate::http::error::{ApiError, ApiResult};
use crate::http::state::{AppState, State as Server};

/// How often [`generate`] looks whether anything was generated.
const LOOK: Duration = Duration::from_millis(50);

/// `GET /health`, `/ping`: 200 with an empty body while the engine works or can
/// recover, or 503 with the reason. An orchestrator restarts a server that fails it.
pub async fn health(State(state): State<AppState>) -> ApiResult<StatusCode> {
    match state.client.engine().failure() {
        Some(error) => Err(ApiError::unavailable(error.message())),
        None => Ok(StatusCode::OK),
    }
}

/// `GET /ready`: 200 while requests are taken and computed, or 503 with the reason:
/// shutting down, the worker is being started again, or the queue is full. A load
/// balancer sends requests elsewhere then.
pub async fn ready(State(state): State<AppState>) -> ApiResult<StatusCode> {
    is_ready(&state)?;
    let full = state.client.engine().has_room(1).err();
    full.map_or(Ok(StatusCode::OK), |error| Err(ApiError::unavailable(error.message())))
}

/// `GET /health_generate`: 200 once a token was generated since the call, its own or
/// any other; 503 if none was in `--health-generate-timeout` seconds. It queues one
/// request of one token, which is too short to enter the prefix cache.
pub async fn generate(State(state): State<AppState>) -> ApiResult<StatusCode> {
    is_ready(&state)?;
    let engine = state.client.engine();
    let limit_s = state.config.health_generate_timeout_s;
    let deadline = Instant::now() + Duration::from_secs_f64(limit_s);
    let before = engine.stats().generated_tokens;
    let own = match state.client.generate(probe()).await {
        Ok(stream) => Some(stream),
        // The queue is full: what is in it must move.
        Err(error) if error.kind() == Kind::Overloaded => None,
        Err(error) => return Err(error.into()),
    };
    let mut looks = interval(LOOK);
    while timeout_at(deadline, looks.tick()).await.is_ok() {
        if engine.stats().generated_tokens > before {
            return Ok(StatusCode::OK);
        }
        is_ready(&state)?;
    }
    drop(own);
    Err(ApiError::unavailable(format!("no token was generated in {limit_s} s (--health-generate-timeout)")))
}

fn is_ready(state: &Server) -> ApiResult<()> {
    let engine = state.client.engine();
    if let Some(error) = engine.failure() {
        return Err(ApiError::unavailable(error.message()));
    }
    if state.is_draining() {
        return Err(ApiError::unavailable("the server is shutting down"));
    }
    if !engine.has_worker() {
        return Err(ApiError::unavailable("the worker is being started again"));
    }
    Ok(())
}

fn probe() -> GenerateRequest {
    let options = SamplingOptions {
        temperature: Some(0.0),
        max_tokens: Some(1),
        ignore_eos: true,
        detokenize: false,
        ..SamplingOptions::default()
    };
    GenerateRequest { prompts: vec![Prompt::Tokens(vec![0])], options }
}
