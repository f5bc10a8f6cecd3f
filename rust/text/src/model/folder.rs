//! A Hugging Face folder.

use std::collections::BTreeMap;
use std::path::Path;

use octavo_core::Token;
use serde_json::Value;

use super::{Facts, SamplingDefaults, Vocabulary, read_text};
use crate::error::{Error, Result};
use crate::tokenizer::Tokenizer;

/// Names under which configurations keep the context length, most telling first.
const CONTEXT_KEYS: [&str; 5] =
    ["max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length"];

/// What config.json and generation_config.json say.
pub(super) fn facts(folder: &Path) -> Result<Facts> {
    let config_path = folder.join("config.json");
    let config = read_json(&config_path)?.ok_or_else(|| {
        Error::not_found(
            &config_path,
            "there is no such file; a model folder has config.json, weights and a tokenizer",
        )
    })?;
    let generation = read_json(&folder.join("generation_config.json"))?.unwrap_or(Value::Null);
    // Models with several parts keep the language model's values one level down.
    let parts = [&config, &config["text_config"], &config["llm_config"]];
    let context = parts.iter().find_map(|part| CONTEXT_KEYS.iter().find_map(|key| part[*key].as_u64()));
    let mut eos_token_ids = ids(&generation["eos_token_id"]);
    for part in parts {
        eos_token_ids.extend(ids(&part["eos_token_id"]));
    }
    let float = |key: &str| generation[key].as_f64().map(|number| number as f32);
    let count = |key: &str| generation[key].as_u64().and_then(|number| u32::try_from(number).ok());
    Ok(Facts {
        eos_token_ids,
        sampling: SamplingDefaults {
            temperature: float("temperature"),
            top_p: float("top_p"),
            top_k: count("top_k"),
            min_p: float("min_p"),
            repetition_penalty: float("repetition_penalty"),
            max_new_tokens: count("max_new_tokens"),
        },
        context_len: context.and_then(|number| usize::try_from(number).ok()),
    })
}

/// The tokenizer and chat templates of a folder.
pub(super) fn vocabulary(folder: &Path) -> Result<Vocabulary> {
    let path = folder.join("tokenizer.json");
    if !path.exists() {
        return Err(Error::not_found(&path, missing_tokenizer(folder)));
    }
    let mut tokenizer = Tokenizer::from_file(&path)?;
    let config = read_json(&folder.join("tokenizer_config.json"))?.unwrap_or(Value::Null);
    let map = read_json(&folder.join("special_tokens_map.json"))?.unwrap_or(Value::Null);
    let mut specials = special_tokens(&map);
    // A null in tokenizer_config.json takes the token away.
    for (name, value) in config.as_object().into_iter().flatten() {
        if name.ends_with("_token") && value.is_null() {
            specials.remove(name);
        }
    }
    specials.extend(special_tokens(&config));
    let find = |name: &str| specials.get(name).and_then(|piece| tokenizer.token(piece));
    let (bos, eos) = (find("bos_token"), find("eos_token"));
    let (pad, unk) = (find("pad_token"), find("unk_token"));
    let roles = tokenizer.roles_mut();
    (roles.bos, roles.eos, roles.pad, roles.unk) = (bos, eos, pad, unk);
    let (template, tool_use_template) = templates(folder, &config)?;
    Ok(Vocabulary {
        tokenizer,
        specials,
        template,
        tool_use_template,
        eos_token_ids: eos.into_iter().collect(),
    })
}

fn missing_tokenizer(folder: &Path) -> String {
    let other = ["tokenizer.model", "tekken.json", "vocab.json", "tiktoken.model"]
        .into_iter()
        .find(|name| folder.join(name).exists());
    match other {
        Some(name) => format!(
            "there is no such file, only {name}: save the tokenizer with transformers' \
             AutoTokenizer.from_pretrained(...).save_pretrained(...), or name another one with --tokenizer"
        ),
        None => "there is no such file; name a folder or file that has one with --tokenizer".to_owned(),
    }
}

/// The chat template and the one for tools: from files of their own, else from tokenizer_config.json.
fn templates(folder: &Path, config: &Value) -> Result<(Option<String>, Option<String>)> {
    let file = read_text(&folder.join("chat_template.jinja"))?;
    let tool_use_file = read_text(&folder.join("additional_chat_templates").join("tool_use.jinja"))?;
    if file.is_some() {
        return Ok((file, tool_use_file));
    }
    let config = match &config["chat_template"] {
        Value::Null => {
            read_json(&folder.join("chat_template.json"))?.unwrap_or(Value::Null)["chat_template"].clone()
        }
        other => other.clone(),
    };
    let named = |name: &str| {
        let found = config.as_array()?.iter().find(|entry| entry["name"] == name)?;
        found["template"].as_str().map(str::to_owned)
    };
    let default = config.as_str().map(str::to_owned).or_else(|| named("default"));
    Ok((default, named("tool_use").or(tool_use_file)))
}

/// `bos_token` and its like: a string, or an object with the string as `content`.
fn special_tokens(config: &Value) -> BTreeMap<String, String> {
    let entries = config.as_object().into_iter().flatten();
    entries
        .filter(|(name, _)| name.ends_with("_token"))
        .filter_map(|(name, value)| {
            let text = value.as_str().or_else(|| value["content"].as_str())?;
            Some((name.clone(), text.to_owned()))
        })
        .collect()
}

/// One id or a list of ids.
fn ids(value: &Value) -> Vec<Token> {
    let one = |value: &Value| value.as_u64().and_then(|id| Token::try_from(id).ok());
    match value.as_array() {
        Some(list) => list.iter().filter_map(one).collect(),
        None => one(value).into_iter().collect(),
    }
}

fn read_json(path: &Path) -> Result<Option<Value>> {
    let Some(text) = read_text(path)? else { return Ok(None) };
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|error| Error::model(format!("is not valid JSON: {error}")).at(path))
}
