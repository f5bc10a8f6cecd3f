//! The request body to the client's request.

use octavo_protocol::{ChatFields, SamplingFields};
use serde_json::Value;

use crate::client::SamplingOptions;
use crate::http::error::{ApiError, ApiResult};
use crate::http::middleware::auth::Tenant;
use crate::http::routes::conversation::Conversation;
use crate::http::routes::logprobs::TokenNames;
use crate::http::routes::usage::UsagePlan;
use crate::http::state::{AppState, unix_time};

/// What a reply needs to know of its request.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the API")]
pub struct Call {
    /// `chatcmpl-...`.
    pub id: String,
    /// Unix time, seconds.
    pub created: u64,
    /// The served name.
    pub model: String,
    /// `octavo-...`.
    pub fingerprint: String,
    /// Role of the reply.
    pub role: String,
    /// What to count and where to say it.
    pub usage: UsagePlan,
    /// How tokens are written in log-probabilities.
    pub names: TokenNames,
    /// The last message's text, to put before the reply.
    pub echo: Option<String>,
    /// Report log-probabilities.
    pub logprobs: bool,
    /// Report those of the prompt.
    pub prompt_logprobs: bool,
    /// Reply with token ids too.
    pub token_ids: bool,
    /// Reply with the templated prompt.
    pub wants_prompt_text: bool,
    /// The templated prompt, once it is made and if it is wanted.
    pub prompt_text: Option<String>,
}

/// The client's options.
///
/// # Errors
/// 400, naming the field.
pub fn options(
    fields: &ChatFields,
    sampling: &SamplingFields,
    tenant: Option<Tenant>,
) -> ApiResult<SamplingOptions> {
    let mut options = super::super::convert::options(sampling, tenant)?;
    options.max_tokens = fields.max_completion_tokens.or(fields.max_tokens);
    let asked = fields.logprobs == Some(true);
    if let Some(top) = fields.top_logprobs
        && top != 0
        && !asked
    {
        return Err(ApiError::invalid(
            "top_logprobs",
            format!("top_logprobs is {top} but needs logprobs to be true"),
        ));
    }
    options.logprobs = asked.then(|| fields.top_logprobs.unwrap_or(0));
    if sampling.prompt_logprobs.is_some() && sampling.stream == Some(true) {
        return Err(ApiError::invalid(
            "prompt_logprobs",
            "prompt_logprobs cannot be streamed; set stream to false",
        ));
    }
    Ok(options)
}

/// What the reply needs to know, and the conversation to render. `bytes` is the
/// body's length.
///
/// # Errors
/// 400, naming the field.
pub fn call(
    state: &AppState,
    id: String,
    model: String,
    fields: ChatFields,
    sampling: &SamplingFields,
    usage: UsagePlan,
    bytes: usize,
) -> ApiResult<(Call, Conversation)> {
    check_tools(&fields)?;
    let Some(messages) = fields.messages else {
        return Err(ApiError::malformed(
            Some("body.messages".to_owned()),
            "body.messages: the field is required",
        ));
    };
    let role = state.config.response_role.clone();
    let last = messages
        .last()
        .filter(|last| fields.echo == Some(true) && last.get("role") == Some(&role.clone().into()));
    let call = Call {
        id,
        created: unix_time(),
        model,
        fingerprint: state.fingerprint.clone(),
        usage,
        names: TokenNames {
            as_ids: sampling.return_tokens_as_token_ids.unwrap_or(state.config.return_tokens_as_token_ids),
        },
        echo: last.and_then(|last| text_of(last.get("content")?)),
        role,
        logprobs: fields.logprobs == Some(true),
        prompt_logprobs: sampling.prompt_logprobs.is_some(),
        token_ids: sampling.return_token_ids == Some(true),
        wants_prompt_text: fields.return_prompt_text == Some(true),
        prompt_text: None,
    };
    let conversation = Conversation {
        messages,
        tools: fields.tools,
        documents: fields.documents,
        add_generation_prompt: fields.add_generation_prompt,
        continue_final_message: fields.continue_final_message,
        template: fields.chat_template,
        kwargs: fields.chat_template_kwargs,
        reasoning_effort: fields.reasoning_effort,
        cache_control: fields.cache_control,
        bytes,
    };
    Ok((call, conversation))
}

/// The text of a message's content.
fn text_of(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => Some(parts.iter().filter_map(|part| part.get("text")?.as_str()).collect()),
        _ => None,
    }
}

/// Tool calls are not read from the output yet: tools may be shown to the model
/// but not asked for.
fn check_tools(fields: &ChatFields) -> ApiResult<()> {
    let choice = fields.tool_choice.as_ref().filter(|choice| !choice.is_null());
    let is_none = choice.and_then(Value::as_str) == Some("none");
    match &fields.tools {
        Some(tools) if tools.is_empty() => {
            Err(ApiError::invalid("tools", "tools is an empty list; leave it out or name at least one"))
        }
        Some(_) if !is_none => Err(ApiError::invalid(
            "tools",
            "tools is not supported yet, but to show tools to the model: set tool_choice to \"none\" or leave tools out",
        )),
        None if choice.is_some() && !is_none => Err(ApiError::invalid(
            "tool_choice",
            "tool_choice is not supported yet; leave it out or set it to \"none\"",
        )),
        _ => Ok(()),
    }
}
