//! The environment that chat templates run in: Jinja as Hugging Face sets it up.

use std::io::Write;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{AutoEscape, Environment, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

use super::{Clock, python};
use crate::error::{Error, Result};

/// Steps that a rendering may take; a long conversation takes some 100 a message.
const FUEL: u64 = 5_000_000;
/// Deepest macros and includes.
const RECURSION: usize = 100;
/// Most bytes that a template may print.
const MAX_OUTPUT_BYTES: usize = 64 << 20;
/// Longest template.
const MAX_SOURCE_BYTES: usize = 1 << 20;

type JinjaResult<T> = std::result::Result<T, minijinja::Error>;

/// What a template said through `raise_exception`.
#[derive(Debug)]
struct Raised(String);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

pub(super) fn new(clock: Clock) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(RECURSION);
    environment.set_debug(false);
    environment.set_unknown_method_callback(method);
    environment.set_formatter(|out, _, value| Ok(out.write_str(&python::string(value))?));
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", move |format: &str| {
        jiff::fmt::strtime::format(format, clock()).map_err(|error| failed(format!("strftime_now: {error}")))
    });
    environment.add_filter("tojson", to_json);
    environment.add_filter("string", |value: &Value| python::string(value));
    environment.add_filter("join", join);
    environment.add_filter("trim", trim);
    environment.add_filter("upper", |value: &Value| python::string(value).to_uppercase());
    environment.add_filter("lower", |value: &Value| python::string(value).to_lowercase());
    environment.add_filter("length", length);
    environment.add_filter("count", length);
    environment.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map)
    });
    environment.add_test("iterable", |value: &Value| {
        use ValueKind::{Iterable, Map, Seq, String, Undefined};
        matches!(value.kind(), Seq | String | Map | Iterable | Undefined)
    });
    environment
}

/// Compiles `source` under `name`.
pub(super) fn add(environment: &mut Environment<'static>, name: &'static str, source: &str) -> Result<()> {
    if source.len() > MAX_SOURCE_BYTES {
        return Err(Error::model(format!(
            "the chat template has {} bytes; at most {MAX_SOURCE_BYTES} are allowed",
            source.len()
        )));
    }
    let source = without_generation_tags(&source.replace("\r\n", "\n"));
    environment
        .add_template_owned(name, source)
        .map_err(|error| Error::model(format!("the chat template cannot be compiled: {}", describe(&error))))
}

/// Renders the template called `name`.
pub(super) fn render(
    environment: &Environment<'static>,
    name: &str,
    context: &serde_json::Map<String, serde_json::Value>,
) -> Result<String> {
    let mut output = Output::default();
    let rendered = match environment.get_template(name) {
        Ok(template) => template.render_captured_to(context, &mut output).map(|_| ()),
        Err(error) => Err(error),
    };
    rendered.map_err(|error| match raised(&error) {
        Some(message) => Error::Refused(message),
        None => Error::Template(describe(&error)),
    })?;
    String::from_utf8(output.bytes).map_err(|error| Error::Internal(format!("a template's output: {error}")))
}

/// Collects the output up to a limit.
#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + bytes.len() > MAX_OUTPUT_BYTES {
            return Err(std::io::Error::other(format!("it prints more than {MAX_OUTPUT_BYTES} bytes")));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn raised(error: &minijinja::Error) -> Option<String> {
    causes(error).find_map(|cause| cause.downcast_ref::<Raised>()).map(|raised| raised.0.clone())
}

fn describe(error: &minijinja::Error) -> String {
    let mut text = error.to_string();
    for cause in causes(error).skip(1) {
        text.extend([": ", &cause.to_string()]);
    }
    text
}

fn causes<'a>(error: &'a minijinja::Error) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    let first: &'a (dyn std::error::Error + 'static) = error;
    std::iter::successors(Some(first), |cause| cause.source())
}

fn failed(message: impl Into<std::borrow::Cow<'static, str>>) -> minijinja::Error {
    minijinja::Error::new(ErrorKind::InvalidOperation, message)
}

fn raise_exception(message: &str) -> JinjaResult<Value> {
    Err(failed("raised by the template").with_source(Raised(message.to_owned())))
}

/// Methods of Python's types that templates call.
fn method(state: &State, value: &Value, name: &str, args: &[Value]) -> JinjaResult<Value> {
    pycompat::unknown_method_callback(state, value, name, args)
}

#[expect(clippy::needless_pass_by_value, reason = "minijinja passes arguments so")]
fn to_json(value: &Value, options: Kwargs) -> JinjaResult<Value> {
    if value.is_undefined() {
        return Err(failed("tojson: the value is undefined"));
    }
    let separators = match options.get::<Option<Vec<String>>>("separators")? {
        None => None,
        Some(pair) => match <[String; 2]>::try_from(pair) {
            Ok([item, key]) => Some((item, key)),
            Err(_) => return Err(failed("tojson: separators must be a pair of strings")),
        },
    };
    let style = python::JsonStyle {
        ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        indent: options.get::<Option<usize>>("indent")?,
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        separators,
    };
    options.assert_all_used()?;
    let value = serde_json::to_value(value).map_err(|error| failed(format!("tojson: {error}")))?;
    Ok(Value::from(style.write(&value)))
}

fn join(values: &Value, separator: Option<&str>) -> JinjaResult<String> {
    let parts: Vec<String> = values.try_iter()?.map(|value| python::string(&value)).collect();
    Ok(parts.join(separator.unwrap_or_default()))
}

fn trim(value: &Value, characters: Option<&str>) -> String {
    let text = python::string(value);
    match characters {
        Some(characters) => text.trim_matches(|character| characters.contains(character)).to_owned(),
        None => text.trim().to_owned(),
    }
}

fn length(value: &Value) -> JinjaResult<usize> {
    if value.is_undefined() {
        return Ok(0);
    }
    value.len().ok_or_else(|| failed(format!("a value of type {} has no length", value.kind())))
}

/// `{% generation %}` only marks text for training. An `if` that is always true has
/// the same effect on whitespace.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(len) = rest[start..].find("%}") else { break };
        let tag = &rest[start..start + len];
        let name = tag.trim_matches(|c: char| c.is_whitespace() || matches!(c, '{' | '%' | '-' | '+'));
        out.push_str(&rest[..start]);
        match name {
            "generation" => out.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => out.push_str(&tag.replace("endgeneration", "endif")),
            _ => out.push_str(tag),
        }
        rest = &rest[start + len..];
    }
    out.push_str(rest);
    out
}
