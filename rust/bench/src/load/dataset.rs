//! Prompts from a JSONL file.

use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::Deserialize;

use super::workload::{Prompt, Turn};
use crate::error::{Error, Result};

/// Most lines that are kept; later ones are not read.
const MOST_LINES: usize = 1_000_000;

#[derive(Deserialize)]
struct Line {
    prompt: Option<TextOrIds>,
    messages: Option<Vec<serde_json::Value>>,
    #[serde(alias = "max_tokens", alias = "output_tokens", alias = "expected_output_len")]
    output_len: Option<u32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TextOrIds {
    Text(String),
    Ids(Vec<u32>),
}

/// The prompts of `path`; `output_len` is for lines that do not give one.
///
/// # Errors
/// A file that cannot be read or has no prompt, or a line that is no prompt: named by its number.
pub fn read(path: &Path, output_len: u32) -> Result<Vec<Turn>> {
    let name = path.display();
    let bad = |what: String| Error::invalid(format!("--dataset-path {name}: {what}"));
    let file = std::fs::File::open(path).map_err(|error| bad(error.to_string()))?;
    let mut turns = Vec::new();
    for (index, line) in BufReader::new(file).lines().take(MOST_LINES).enumerate() {
        let line = line.map_err(|error| bad(error.to_string()))?;
        if !line.trim().is_empty() {
            let turn = parse(&line, output_len);
            turns.push(turn.map_err(|error| bad(format!("line {}: {error}", index + 1)))?);
        }
    }
    if turns.is_empty() {
        return Err(bad("there is no prompt in it".into()));
    }
    Ok(turns)
}

fn parse(line: &str, output_len: u32) -> std::result::Result<Turn, String> {
    let line: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let prompt = match (line.prompt, line.messages) {
        (Some(TextOrIds::Text(text)), None) => Prompt::Text(text),
        (Some(TextOrIds::Ids(ids)), None) => Prompt::Ids(ids),
        (None, Some(messages)) => Prompt::Messages(messages),
        _ => return Err("give either `prompt` or `messages`".into()),
    };
    Ok(Turn { prompt, output_len: line.output_len.unwrap_or(output_len) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_prompts_or_errors_that_say_why() {
        let turn = parse(r#"{"prompt": [1, 2], "max_tokens": 9, "other": 1}"#, 4).unwrap();
        assert_eq!(turn, Turn { prompt: Prompt::Ids(vec![1, 2]), output_len: 9 });
        assert_eq!(parse(r#"{"prompt": "hello"}"#, 4).unwrap().output_len, 4);
        assert!(matches!(parse(r#"{"messages": []}"#, 4).unwrap().prompt, Prompt::Messages(_)));
        assert!(parse("{}", 4).unwrap_err().contains("`prompt` or `messages`"));
        assert!(parse(r#"{"prompt": {}}"#, 4).is_err());
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = read(Path::new("/nonexistent/prompts.jsonl"), 1).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/prompts.jsonl"));
    }
}
