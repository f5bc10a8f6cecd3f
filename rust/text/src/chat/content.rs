//! Message content: what a template takes, and bringing messages into that form.

use serde_json::{Value, json};

use super::ChatTemplate;
use crate::error::{Error, Result};

/// The form of content that templates get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentFormat {
    /// Content stays as it was sent where the template shows it; otherwise it is converted.
    Auto,
    /// Always a string; text parts are joined by newlines.
    String,
    /// Always a list of parts, as in OpenAI's API.
    OpenAi,
}

/// The forms that a template shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Accepts {
    pub(super) string: bool,
    pub(super) parts: bool,
}

const PROBE: &str = "octavo probe";
/// Longest quotation of a part's type in a message, characters.
const MAX_QUOTE: usize = 100;

/// Renders a message in both forms and looks for its text.
pub(super) fn probe(render: impl Fn(&[Value]) -> Result<String>) -> Accepts {
    let shows = |content: Value| match render(&[json!({"role": "user", "content": content})]) {
        // A template that prints the list itself shows the type, which is no text of the message.
        Ok(text) => text.contains(PROBE) && !text.contains("'type'") && !text.contains("\"type\""),
        Err(_) => false,
    };
    let parts = shows(json!([{"type": "text", "text": PROBE}]));
    Accepts { string: shows(json!(PROBE)) || !parts, parts }
}

/// Brings a request's messages into the form that the template takes: content as a
/// string or as parts, tool-call arguments as objects. Messages keep all other fields.
///
/// Fails with a message that names the part at fault.
pub fn prepare_messages(
    messages: &[Value],
    template: &ChatTemplate,
    format: ContentFormat,
) -> Result<Vec<Value>> {
    let accepts = match format {
        ContentFormat::Auto => template.accepts,
        ContentFormat::String => Accepts { string: true, parts: false },
        ContentFormat::OpenAi => Accepts { string: false, parts: true },
    };
    let mut prepared = messages.to_vec();
    for (index, message) in prepared.iter_mut().enumerate() {
        let at = format!("messages[{index}]");
        let Some(message) = message.as_object_mut() else {
            return Err(Error::invalid("messages", format!("{at} must be an object")));
        };
        if let Some(content) = message.get_mut("content") {
            *content = prepare_content(content, accepts, &at)?;
        }
        if let Some(calls) = message.get_mut("tool_calls").and_then(Value::as_array_mut) {
            for (index, call) in calls.iter_mut().enumerate() {
                parse_arguments(call, &format!("{at}.tool_calls[{index}]"))?;
            }
        }
    }
    Ok(prepared)
}

fn prepare_content(content: &Value, accepts: Accepts, at: &str) -> Result<Value> {
    match content {
        Value::String(text) if accepts.string => Ok(json!(text)),
        Value::String(text) => Ok(json!([{"type": "text", "text": text}])),
        Value::Array(parts) => {
            let texts = parts
                .iter()
                .enumerate()
                .map(|(index, part)| text_of(part, &format!("{at}.content[{index}]")))
                .collect::<Result<Vec<_>>>()?;
            if accepts.parts {
                return Ok(texts.iter().map(|text| json!({"type": "text", "text": text})).collect());
            }
            Ok(json!(texts.join("\n")))
        }
        Value::Null => Ok(Value::Null),
        _ => Err(Error::invalid("messages", format!("{at}.content must be a string or a list of parts"))),
    }
}

fn text_of<'a>(part: &'a Value, at: &str) -> Result<&'a str> {
    if let Some(text) = part.as_str() {
        return Ok(text);
    }
    let kind = part["type"].as_str().unwrap_or_default();
    let field = match kind {
        "text" | "input_text" | "output_text" => "text",
        "refusal" => "refusal",
        "thinking" => "thinking",
        _ => {
            let kind: String = kind.chars().take(MAX_QUOTE).collect();
            let message = format!("{at} has the type {kind:?}; this model takes parts of type \"text\"");
            return Err(Error::invalid("messages", message));
        }
    };
    part[field]
        .as_str()
        .ok_or_else(|| Error::invalid("messages", format!("{at} must have a string in its field {field:?}")))
}

/// Templates expect arguments as an object; OpenAI's API carries them as JSON in a string.
fn parse_arguments(call: &mut Value, at: &str) -> Result<()> {
    let Some(arguments) = call.get_mut("function").and_then(|function| function.get_mut("arguments")) else {
        return Ok(());
    };
    if let Some(text) = arguments.as_str() {
        let text = if text.trim().is_empty() { "{}" } else { text };
        *arguments = serde_json::from_str(text).map_err(|error| {
            Error::invalid("messages", format!("{at}.function.arguments is not valid JSON: {error}"))
        })?;
    }
    Ok(())
}

/// The messages with `mark` and a space after the text of the last one.
pub(super) fn mark_final(messages: &[Value], mark: &str) -> Result<Vec<Value>> {
    let mut messages = messages.to_vec();
    let content = messages.last_mut().and_then(|message| message.get_mut("content"));
    let text = match content {
        Some(Value::Array(parts)) => parts.last_mut().and_then(|part| part.get_mut("text")),
        other => other,
    };
    match text {
        Some(Value::String(text)) => text.extend([mark, " "]),
        _ => {
            return Err(Error::invalid(
                "continue_final_message",
                "continue_final_message needs a last message that ends in text",
            ));
        }
    }
    Ok(messages)
}
