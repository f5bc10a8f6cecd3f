//! Messages to the text that the model is given.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_core::{Error, Result};
use octavo_protocol::Message;
use octavo_text::{ChatRequest, ChatTemplate, Tokenizer, prepare_messages};
use serde_json::{Map, Value};

use super::breakpoints;
use crate::client::{CachePrefix, from_text};
use crate::http::error::{ApiError, ApiResult};
use crate::http::state::AppState;

/// What goes into a chat template.
#[derive(Debug, Default)]
pub struct Conversation {
    /// At least one.
    pub messages: Vec<Message>,
    /// Tools that the model may call.
    pub tools: Option<Vec<Value>>,
    /// Documents for retrieval.
    pub documents: Option<Vec<Value>>,
    /// Default: unless the final message is continued.
    pub add_generation_prompt: Option<bool>,
    /// Default false.
    pub continue_final_message: Option<bool>,
    /// In place of the model's own.
    pub template: Option<String>,
    /// The request's variables.
    pub kwargs: Option<Map<String, Value>>,
    /// One more variable.
    pub reasoning_effort: Option<String>,
    /// How long the prompt up to the last message's end is kept in the prefix cache.
    pub cache_control: Option<Value>,
    /// Length of the request's body, bytes.
    pub bytes: usize,
}

/// What the model is given.
#[derive(Debug)]
pub struct Rendered {
    /// The text, special tokens included.
    pub text: String,
    /// Beginnings of it to keep in the prefix cache.
    pub prefixes: Vec<CachePrefix>,
}

impl Conversation {
    /// The text for the model.
    ///
    /// # Errors
    /// 400, naming the field; the template's refusal.
    pub async fn render(mut self, state: &AppState) -> ApiResult<Rendered> {
        check_messages(&self.messages)?;
        let breakpoints = breakpoints::take(&mut self.messages, self.cache_control.as_ref())?;
        let template = self.template(state)?;
        let mut kwargs = state.config.default_chat_template_kwargs.clone();
        kwargs.extend(self.kwargs.unwrap_or_default());
        if let Some(effort) = self.reasoning_effort {
            kwargs.entry("reasoning_effort").or_insert(Value::String(effort));
        }
        let format = state.config.chat_template_content_format.into();
        let continue_final_message = self.continue_final_message.unwrap_or(false);
        let add_generation_prompt = self.add_generation_prompt.unwrap_or(!continue_final_message);
        let (tools, documents) = (self.tools, self.documents);
        let messages: Vec<Value> = self.messages.into_iter().map(Value::Object).collect();
        let work = move || -> Result<Rendered> {
            let render = |messages: &[Value]| {
                let messages = prepare_messages(messages, &template, format)?;
                template.render(&ChatRequest {
                    messages: &messages,
                    tools: tools.as_deref(),
                    documents: documents.as_deref(),
                    add_generation_prompt,
                    continue_final_message,
                    kwargs: Some(&kwargs),
                })
            };
            let text = render(&messages).map_err(from_text)?;
            let prefixes = breakpoints::prefixes(messages, &breakpoints, render);
            Ok(Rendered { text, prefixes })
        };
        Ok(state.client.compute(self.bytes, work).await?)
    }

    fn template(&self, state: &AppState) -> ApiResult<Arc<ChatTemplate>> {
        if let Some(source) = &self.template {
            if !state.config.trust_request_chat_template {
                let message = "this server does not take chat templates from requests (see \
                               --trust-request-chat-template); leave chat_template out";
                return Err(ApiError::invalid("chat_template", message));
            }
            let template = ChatTemplate::new(source, specials(state.client.tokenizer()));
            let template = template.map_err(|error| Error::invalid("chat_template", error.to_string()))?;
            return Ok(Arc::new(template));
        }
        state.client.chat_template().cloned().ok_or_else(|| {
            let message =
                "the model has no chat template; use /v1/completions, or give one with --chat-template";
            ApiError::invalid("messages", message)
        })
    }
}

fn check_messages(messages: &[Message]) -> ApiResult<()> {
    if messages.is_empty() {
        return Err(ApiError::invalid("messages", "messages is empty; send at least one"));
    }
    for (index, message) in messages.iter().enumerate() {
        let misfit = |field: &str, what: &str| {
            let path = format!("body.messages.{index}.{field}");
            let message = format!("{path}: {what}");
            Err(ApiError::malformed(Some(path), message))
        };
        let role = match message.get("role") {
            None => return misfit("role", "the field is required"),
            Some(Value::String(role)) if !role.is_empty() => role.as_str(),
            Some(_) => return misfit("role", "it must be a string such as user, assistant or system"),
        };
        let calls_tools =
            message.get("tool_calls").and_then(Value::as_array).is_some_and(|calls| !calls.is_empty());
        match message.get("content") {
            Some(Value::String(_) | Value::Array(_)) => {}
            None | Some(Value::Null) => match role {
                "assistant" if !calls_tools => {
                    return misfit("content", "an assistant message needs content or tool_calls");
                }
                "user" | "system" | "developer" => {
                    return misfit("content", "the field is required in a message of this role");
                }
                _ => {}
            },
            Some(_) => return misfit("content", "it must be a string or a list of content parts"),
        }
    }
    Ok(())
}

/// The special tokens that templates know by name.
fn specials(tokenizer: &Tokenizer) -> BTreeMap<String, String> {
    let named = [
        ("bos_token", tokenizer.bos()),
        ("eos_token", tokenizer.eos()),
        ("pad_token", tokenizer.pad()),
        ("unk_token", tokenizer.unk()),
    ];
    let piece =
        |(name, token): (&str, Option<u32>)| Some((name.to_owned(), tokenizer.piece(token?)?.to_owned()));
    named.into_iter().filter_map(piece).collect()
}
