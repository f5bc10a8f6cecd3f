//! `POST /v1/chat/completions`.

mod convert;
mod reply;
mod stream;

use axum::extract::{Extension, State};
use axum::response::Response;
use octavo_protocol::{ChatFields, RefusedFields};

use super::conversation::Rendered;
use super::usage::UsagePlan;
use crate::client::{GenerateRequest, Prompt};
use crate::http::error::ApiResult;
use crate::http::middleware::auth::Tenant;
use crate::http::middleware::request_id::RequestId;
use crate::http::request::JsonBody;
use crate::http::sse;
use crate::http::state::AppState;

/// Answers a conversation, whole or as a stream.
pub async fn create(
    State(state): State<AppState>,
    Extension(name): Extension<RequestId>,
    tenant: Option<Extension<Tenant>>,
    body: JsonBody,
) -> ApiResult<Response> {
    let sampling = super::convert::sampling(&body)?;
    let fields: ChatFields = body.view()?;
    super::convert::refuse(&body.view::<RefusedFields>()?)?;
    let model = state.model(sampling.model.as_deref())?.to_owned();
    let stream = sampling.stream == Some(true);
    let usage = UsagePlan::new(stream, sampling.stream_options, &state.config)?;
    let id = format!("chatcmpl-{}", name.or(sampling.request_id.as_deref()));
    let mut options = convert::options(&fields, &sampling, tenant.map(|Extension(tenant)| tenant))?;
    let add_special_tokens = fields.add_special_tokens.unwrap_or(false);
    let (mut call, conversation) = convert::call(&state, id, model, fields, &sampling, usage, body.len())?;
    drop(body);
    let ticket = state.enter()?;
    let Rendered { text, prefixes } = conversation.render(&state).await?;
    options.cache_prefixes = prefixes;
    call.prompt_text = call.wants_prompt_text.then(|| text.clone());
    let prompts = vec![Prompt::Text { text, add_special_tokens }];
    let output = state.client.generate(GenerateRequest { prompts, options }).await?;
    if stream {
        let keep_alive_s = state.config.sse_keep_alive_interval_s;
        return Ok(sse::response(output, stream::Writer::new(call), keep_alive_s, ticket));
    }
    reply::whole(output, &call).await
}
