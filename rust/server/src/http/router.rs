//! The table of routes and the order of middleware.

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use octavo_core::Result;

use super::error::ApiError;
use super::excerpt::excerpt;
use super::middleware::{access_log, auth, cors, measure, panic, request_id};
use super::routes::{
    chat, completions, health, kv_event_sources, load, metrics, models, reset_prefix_cache, tokenize, version,
};
use super::state::AppState;

/// All routes with their middleware.
///
/// # Errors
/// Invalid CORS options.
pub fn router(state: &AppState) -> Result<Router> {
    let config = &state.config;
    let mut router = Router::new()
        .route("/v1/chat/completions", post(chat::create))
        .route("/v1/completions", post(completions::create))
        .route("/v1/models", get(models::list))
        .route("/health", get(health::health))
        .route("/ping", get(health::health).post(health::health))
        .route("/ready", get(health::ready))
        .route("/health_generate", get(health::generate))
        .route("/version", get(version::version))
        .route("/load", get(load::load))
        .route("/kv_event_sources", get(kv_event_sources::list))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        .route("/reset_prefix_cache", post(reset_prefix_cache::reset))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method);
    if !config.disable_log_stats {
        router = router.route("/metrics", get(metrics::metrics));
    }
    if !config.api_keys.is_empty() {
        router = router.layer(from_fn_with_state(auth::ApiKeys::new(&config.api_keys), auth::check));
    }
    if let Some(layer) = cors::layer(&config.cors)? {
        router = router.layer(layer);
    }
    router = router.layer(from_fn(panic::guard));
    if !config.disable_log_stats {
        let metrics = state.client.engine().metrics().http();
        router = router.layer(from_fn_with_state(metrics, measure::measure));
    }
    if config.access_log {
        router = router.layer(from_fn(access_log::log));
    }
    Ok(router.layer(from_fn_with_state(state.clone(), request_id::name)).with_state(state.clone()))
}

async fn unknown_path(uri: Uri) -> ApiError {
    ApiError::plain(StatusCode::NOT_FOUND, format!("there is nothing at {}", excerpt(uri.path())))
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} does not take {}", excerpt(uri.path()), excerpt(method.as_str()));
    ApiError::plain(StatusCode::METHOD_NOT_ALLOWED, message)
}
