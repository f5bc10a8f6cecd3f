//! Values as Python prints them: `str`, `repr` and `json.dumps`.

use std::fmt::Write;

use minijinja::Value;
use minijinja::value::ValueKind;

/// Python's `str(value)`.
pub(super) fn string(value: &Value) -> String {
    if let Some(text) = value.as_str() {
        return text.to_owned();
    }
    let mut out = String::new();
    repr(&mut out, value);
    out
}

/// Python's `repr(value)`.
fn repr(out: &mut String, value: &Value) {
    match value.kind() {
        ValueKind::Undefined => {}
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number if !value.is_integer() => match f64::try_from(value.clone()) {
            Ok(number) => out.push_str(&float(number)),
            Err(_) => out.push_str(&value.to_string()),
        },
        ValueKind::String => repr_string(out, value.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            for (index, item) in value.try_iter().into_iter().flatten().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                repr(out, &item);
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (index, key) in value.try_iter().into_iter().flatten().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                repr(out, &key);
                out.push_str(": ");
                repr(out, &value.get_item(&key).unwrap_or_default());
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
}

fn repr_string(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for character in text.chars() {
        match character {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            _ if character == quote => {
                out.push('\\');
                out.push(quote);
            }
            _ if character.is_control() => {
                // Control characters lie below U+00A0.
                let _infallible = write!(out, "\\x{:02x}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    out.push(quote);
}

/// Python's `repr` of a float: shortest digits, exponents from 1e16 up and below 1e-4.
fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let size = number.abs();
    if size != 0.0 && !(1e-4..1e16).contains(&size) {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    format!("{number:?}")
}

/// The options of Python's `json.dumps`.
#[derive(Debug, Default)]
pub(super) struct JsonStyle {
    pub(super) ascii: bool,
    pub(super) indent: Option<usize>,
    pub(super) separators: Option<(String, String)>,
    pub(super) sort_keys: bool,
}

impl JsonStyle {
    /// Python's `json.dumps(value)`.
    pub(super) fn write(&self, value: &serde_json::Value) -> String {
        let mut out = String::new();
        self.value(&mut out, value, 0);
        out
    }

    fn value(&self, out: &mut String, value: &serde_json::Value, depth: usize) {
        use serde_json::Value;
        match value {
            Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
                Some(number) => out.push_str(&float(number)),
                None => out.push_str(&number.to_string()),
            },
            Value::String(text) => self.string(out, text),
            Value::Array(items) => {
                self.items(out, ('[', ']'), items, depth, |out, item| self.value(out, item, depth + 1));
            }
            Value::Object(map) => {
                let mut entries: Vec<_> = map.iter().collect();
                if self.sort_keys {
                    entries.sort_by_key(|(key, _)| *key);
                }
                let colon = self.separators.as_ref().map_or(": ", |(_, colon)| colon);
                self.items(out, ('{', '}'), &entries, depth, |out, (key, value)| {
                    self.string(out, key);
                    out.push_str(colon);
                    self.value(out, value, depth + 1);
                });
            }
            Value::Null | Value::Bool(_) => out.push_str(&value.to_string()),
        }
    }

    fn items<T>(
        &self,
        out: &mut String,
        (open, close): (char, char),
        items: &[T],
        depth: usize,
        write: impl Fn(&mut String, &T),
    ) {
        let break_line = |out: &mut String, depth: usize| {
            if let Some(indent) = self.indent {
                out.push('\n');
                out.extend(std::iter::repeat_n(' ', indent * depth));
            }
        };
        let default = if self.indent.is_some() { "," } else { ", " };
        let comma = self.separators.as_ref().map_or(default, |(comma, _)| comma);
        out.push(open);
        for (index, item) in items.iter().enumerate() {
            out.push_str(if index > 0 { comma } else { "" });
            break_line(out, depth + 1);
            write(out, item);
        }
        if !items.is_empty() {
            break_line(out, depth);
        }
        out.push(close);
    }

    fn string(&self, out: &mut String, text: &str) {
        out.push('"');
        for character in text.chars() {
            match character {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                _ if character < ' '
                    || (self.ascii && !character.is_ascii())
                    || (self.ascii && character == '\u{7f}') =>
                {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        let _infallible = write!(out, "\\u{unit:04x}");
                    }
                }
                _ => out.push(character),
            }
        }
        out.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn printed(value: serde_json::Value) -> String {
        string(&Value::from_serialize(value))
    }

    #[test]
    fn prints_as_python_does() {
        assert_eq!(printed(json!("it's")), "it's");
        assert_eq!(
            printed(json!([true, null, 1, 1.0, 1e16, 1e-5, 0.1])),
            "[True, None, 1, 1.0, 1e+16, 1e-05, 0.1]"
        );
        assert_eq!(
            printed(json!({"b": "it's", "a": ["x\n", "say \"it's\"", "\u{1}é"]})),
            r#"{'b': "it's", 'a': ['x\n', 'say "it\'s"', '\x01é']}"#
        );
    }

    #[test]
    fn writes_json_as_python_does() {
        let value = json!({"b": [1, 2.5, "é<>&'\u{1}"], "a": {}, "c": []});
        let plain = JsonStyle::default();
        assert_eq!(plain.write(&value), r#"{"b": [1, 2.5, "é<>&'\u0001"], "a": {}, "c": []}"#);
        let indented = JsonStyle { indent: Some(2), sort_keys: true, ascii: true, ..JsonStyle::default() };
        assert_eq!(
            indented.write(&value),
            "{\n  \"a\": {},\n  \"b\": [\n    1,\n    2.5,\n    \"\\u00e9<>&'\\u0001\"\n  ],\n  \"c\": []\n}"
        );
        let tight = JsonStyle { separators: Some((",".into(), ":".into())), ..JsonStyle::default() };
        assert_eq!(tight.write(&json!({"a": [1, 2]})), r#"{"a":[1,2]}"#);
    }
}
