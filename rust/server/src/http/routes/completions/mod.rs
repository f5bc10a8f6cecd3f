//! `POST /v1/completions`.

mod convert;
mod reply;
mod stream;

use axum::extract::{Extension, State};
use axum::response::Response;
use octavo_protocol::{CompletionFields, RefusedFields};

use super::usage::UsagePlan;
use crate::http::error::ApiResult;
use crate::http::middleware::auth::Tenant;
use crate::http::middleware::request_id::RequestId;
use crate::http::request::JsonBody;
use crate::http::sse;
use crate::http::state::AppState;

/// Continues prompts, whole or as a stream.
pub async fn create(
    State(state): State<AppState>,
    Extension(name): Extension<RequestId>,
    tenant: Option<Extension<Tenant>>,
    body: JsonBody,
) -> ApiResult<Response> {
    let sampling = super::convert::sampling(&body)?;
    let fields: CompletionFields = body.view()?;
    super::convert::refuse(&body.view::<RefusedFields>()?)?;
    drop(body);
    let model = state.model(sampling.model.as_deref())?.to_owned();
    let stream = sampling.stream == Some(true);
    let usage = UsagePlan::new(stream, sampling.stream_options, &state.config)?;
    let id = format!("cmpl-{}", name.or(sampling.request_id.as_deref()));
    let options = convert::options(&fields, &sampling, &state, tenant.map(|Extension(tenant)| tenant))?;
    let (request, call) = convert::call(&state, id, model, fields, &sampling, options, usage)?;
    let ticket = state.enter()?;
    let output = state.client.generate(request).await?;
    if stream {
        let keep_alive_s = state.config.sse_keep_alive_interval_s;
        return Ok(sse::response(output, stream::Writer::new(call), keep_alive_s, ticket));
    }
    reply::whole(output, &call).await
}
