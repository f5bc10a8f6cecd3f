//! `GET /v1/models`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use octavo_protocol::{ModelCard, ModelList, ModelPermission};

use crate::http::error::json;
use crate::http::state::AppState;

/// One card a served name.
pub async fn list(State(state): State<AppState>) -> Response {
    let card = |name: &String| ModelCard {
        id: name.clone(),
        object: "model".to_owned(),
        created: state.started,
        owned_by: "octavo".to_owned(),
        root: state.config.model_root.clone(),
        parent: None,
        max_model_len: state.client.engine().limits().max_model_len,
        permission: vec![permission(state.started)],
    };
    let data = state.config.served_model_names.iter().map(card).collect();
    json(StatusCode::OK, &ModelList { object: "list".to_owned(), data })
}

fn permission(created: u64) -> ModelPermission {
    ModelPermission {
        id: format!("modelperm-{:032x}", rand::random::<u128>()),
        object: "model_permission".to_owned(),
        created,
        allow_create_engine: false,
        allow_sampling: true,
        allow_logprobs: true,
        allow_search_indices: false,
        allow_view: true,
        allow_fine_tuning: false,
        organization: "*".to_owned(),
        group: None,
        is_blocking: false,
    }
}
