//! `cache_control` in a conversation: up to where it is kept in the prefix cache.

use octavo_protocol::Message;
use serde_json::Value;

use crate::client::CachePrefix;
use crate::http::error::{ApiError, ApiResult};
use crate::http::excerpt::excerpt;

/// Most in one request.
const MOST: usize = 4;
const FIELD: &str = "cache_control";

/// The prompt is kept up to the end of a message or of one of its parts.
#[derive(Clone, Copy, Debug)]
pub struct Breakpoint {
    message: usize,
    part: Option<usize>,
    ttl_s: f64,
}

/// Takes `cache_control` out of messages and their parts; `last` is that of the
/// request itself and goes for the last message.
///
/// # Errors
/// 400, naming the field.
pub fn take(messages: &mut [Message], last: Option<&Value>) -> ApiResult<Vec<Breakpoint>> {
    let mut found = Vec::new();
    let mut add = |value: Option<&Value>, path: &str, message, part| {
        if let Some(ttl_s) = ttl_s(value, path)? {
            found.push(Breakpoint { message, part, ttl_s });
        }
        Ok::<_, ApiError>(())
    };
    for (index, message) in messages.iter_mut().enumerate() {
        if let Some(Value::Array(parts)) = message.get_mut("content") {
            for (place, part) in parts.iter_mut().enumerate() {
                let value = part.as_object_mut().and_then(|part| part.remove(FIELD));
                let path = format!("body.messages.{index}.content.{place}.{FIELD}");
                add(value.as_ref(), &path, index, Some(place))?;
            }
        }
        let value = message.remove(FIELD);
        add(value.as_ref(), &format!("body.messages.{index}.{FIELD}"), index, None)?;
    }
    add(last, &format!("body.{FIELD}"), messages.len().saturating_sub(1), None)?;
    if found.len() > MOST {
        let message = format!("{FIELD} is given {} times; at most {MOST} are taken", found.len());
        return Err(ApiError::invalid(FIELD, message));
    }
    Ok(found)
}

fn ttl_s(value: Option<&Value>, path: &str) -> ApiResult<Option<f64>> {
    let misfit = |what: &str| {
        let form = r#"it must be {"type": "ephemeral"}, with "ttl": "5m" or "1h""#;
        ApiError::malformed(Some(path.to_owned()), format!("{path}: {what}; {form}"))
    };
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
    let Some(fields) = value.as_object() else { return Err(misfit("it is no object")) };
    if let Some(name) = fields.keys().find(|name| !["type", "ttl"].contains(&name.as_str())) {
        return Err(misfit(&format!("it has the unknown field {:?}", excerpt(name))));
    }
    if fields.get("type").and_then(Value::as_str) != Some("ephemeral") {
        return Err(misfit("its type is not \"ephemeral\""));
    }
    match fields.get("ttl") {
        None | Some(Value::Null) => Ok(Some(300.0)),
        Some(Value::String(ttl)) if ttl == "5m" => Ok(Some(300.0)),
        Some(Value::String(ttl)) if ttl == "1h" => Ok(Some(3600.0)),
        Some(_) => Err(misfit("its ttl is unknown")),
    }
}

/// The beginnings of the prompt that `breakpoints` keep: how the template shows
/// what comes before a place is found by rendering with a mark there. It ends with
/// the last text at or before the breakpoint; without one, nothing is kept.
pub fn prefixes<E>(
    mut messages: Vec<Value>,
    breakpoints: &[Breakpoint],
    render: impl Fn(&[Value]) -> Result<String, E>,
) -> Vec<CachePrefix> {
    if breakpoints.is_empty() {
        return Vec::new();
    }
    let marks: Vec<String> = (0..breakpoints.len()).map(|k| format!("OCTAVO_CACHE_{k}_HERE")).collect();
    for (breakpoint, mark) in breakpoints.iter().zip(&marks) {
        if let Some(text) = last_text(&mut messages[..=breakpoint.message], breakpoint.part) {
            text.push_str(mark);
        }
    }
    // The conversation itself renders; without the marks nothing is kept.
    let Ok(text) = render(&messages) else { return Vec::new() };
    let before = |(breakpoint, mark): (&Breakpoint, &String)| {
        let prefix = text[..text.find(mark)?].to_owned();
        let prefix = marks.iter().fold(prefix, |prefix, other| prefix.replace(other, ""));
        Some(CachePrefix { text: prefix, ttl_s: breakpoint.ttl_s })
    };
    breakpoints.iter().zip(&marks).filter_map(before).collect()
}

/// The last text of `messages`; of the last of them up to `part`.
fn last_text(messages: &mut [Value], part: Option<usize>) -> Option<&mut String> {
    let last = messages.len() - 1;
    messages.iter_mut().enumerate().rev().find_map(|(index, message)| match message.get_mut("content")? {
        Value::String(text) => Some(text),
        Value::Array(parts) => {
            let count = part.filter(|_| index == last).map_or(parts.len(), |part| part + 1);
            parts[..count].iter_mut().rev().find_map(text_of)
        }
        _ => None,
    })
}

fn text_of(part: &mut Value) -> Option<&mut String> {
    match part {
        Value::String(text) => Some(text),
        Value::Object(fields) => fields.iter_mut().find_map(|(name, value)| match (name.as_str(), value) {
            ("text" | "refusal" | "thinking", Value::String(text)) => Some(text),
            _ => None,
        }),
        _ => None,
    }
}
