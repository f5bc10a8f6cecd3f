//! The request body to the client's request.

use octavo_protocol::{CompletionFields, Prompt as PromptField, SamplingFields};

use crate::client::{GenerateRequest, Prompt, SamplingOptions};
use crate::http::error::{ApiError, ApiResult};
use crate::http::middleware::auth::Tenant;
use crate::http::routes::logprobs::TokenNames;
use crate::http::routes::usage::UsagePlan;
use crate::http::state::{AppState, unix_time};

/// Output tokens when the request does not say.
const DEFAULT_MAX_TOKENS: i64 = 16;

/// What a reply needs to know of its request.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the API")]
pub struct Call {
    /// `cmpl-...`.
    pub id: String,
    /// Unix time, seconds.
    pub created: u64,
    /// The served name.
    pub model: String,
    /// `octavo-...`.
    pub fingerprint: String,
    /// What to count and where to say it.
    pub usage: UsagePlan,
    /// How tokens are written in log-probabilities.
    pub names: TokenNames,
    /// Prompts as text, where they are echoed and were given as text.
    pub echo: Option<Vec<Option<String>>>,
    /// Only the prompt is wanted: the one token that was sampled is dropped.
    pub echo_alone: bool,
    /// Report log-probabilities of the choice's text.
    pub logprobs: bool,
    /// Report those of the prompt in a field of their own.
    pub prompt_logprobs: bool,
    /// Reply with token ids too.
    pub token_ids: bool,
}

/// The client's options.
///
/// # Errors
/// 400, naming the field.
pub fn options(
    fields: &CompletionFields,
    sampling: &SamplingFields,
    state: &AppState,
    tenant: Option<Tenant>,
) -> ApiResult<SamplingOptions> {
    let mut options = super::super::convert::options(sampling, tenant)?;
    let echo = fields.echo == Some(true);
    let defaults = state.client.config();
    let max_tokens =
        fields.max_tokens.or(defaults.sampling_defaults.max_tokens).unwrap_or(DEFAULT_MAX_TOKENS);
    options.max_tokens = Some(if is_echo_alone(fields) { 1 } else { max_tokens });
    options.logprobs = fields.logprobs;
    if sampling.prompt_logprobs.is_some() && sampling.stream == Some(true) {
        return Err(ApiError::invalid(
            "prompt_logprobs",
            "prompt_logprobs cannot be streamed; set stream to false",
        ));
    }
    if echo && fields.logprobs.is_some() {
        options.prompt_logprobs = options.prompt_logprobs.max(fields.logprobs);
    }
    Ok(options)
}

/// True if only the prompt is wanted.
fn is_echo_alone(fields: &CompletionFields) -> bool {
    fields.echo == Some(true) && fields.max_tokens == Some(0)
}

/// Checks the fields that only completions have.
///
/// # Errors
/// 400, naming the field.
pub fn call(
    state: &AppState,
    id: String,
    model: String,
    fields: CompletionFields,
    sampling: &SamplingFields,
    options: SamplingOptions,
    usage: UsagePlan,
) -> ApiResult<(GenerateRequest, Call)> {
    let (echo, echo_alone) = (fields.echo == Some(true), is_echo_alone(&fields));
    let add_special_tokens = fields.add_special_tokens.unwrap_or(true);
    let prompts = prompts(fields.prompt, add_special_tokens, state.config.max_prompts)?;
    let text_of = |prompt: &Prompt| match prompt {
        Prompt::Text { text, .. } if options.truncate_prompt_tokens.is_none() => Some(text.clone()),
        _ => None,
    };
    let call = Call {
        id,
        created: unix_time(),
        model,
        fingerprint: state.fingerprint.clone(),
        usage,
        names: TokenNames {
            as_ids: sampling.return_tokens_as_token_ids.unwrap_or(state.config.return_tokens_as_token_ids),
        },
        echo: echo.then(|| prompts.iter().map(text_of).collect()),
        echo_alone,
        logprobs: fields.logprobs.is_some(),
        prompt_logprobs: sampling.prompt_logprobs.is_some(),
        token_ids: sampling.return_token_ids == Some(true),
    };
    Ok((GenerateRequest { prompts, options }, call))
}

fn prompts(field: Option<PromptField>, add_special_tokens: bool, most: usize) -> ApiResult<Vec<Prompt>> {
    let text = |text| Prompt::Text { text, add_special_tokens };
    let prompts: Vec<Prompt> = match field {
        None => {
            return Err(ApiError::malformed(
                Some("body.prompt".to_owned()),
                "body.prompt: the field is required",
            ));
        }
        Some(PromptField::Text(prompt)) => vec![text(prompt)],
        Some(PromptField::Texts(prompts)) => prompts.into_iter().map(text).collect(),
        Some(PromptField::Tokens(tokens)) => vec![Prompt::Tokens(tokens)],
        Some(PromptField::TokenLists(lists)) => lists.into_iter().map(Prompt::Tokens).collect(),
    };
    if prompts.is_empty() || prompts.len() > most {
        let message = format!("prompt has {} prompts; send from 1 to {most}", prompts.len());
        return Err(ApiError::invalid("prompt", message));
    }
    Ok(prompts)
}
