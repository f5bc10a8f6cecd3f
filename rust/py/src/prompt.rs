//! Prompts and conversations from Python.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_core::Token;
use octavo_server::client::Prompt;
use octavo_text::{ChatRequest, ChatTemplate, Tokenizer, prepare_messages};
use pyo3::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::enter::Failure;
use crate::text::TextSide;

/// What a request continues.
#[derive(FromPyObject, Debug)]
pub enum PromptSource {
    /// Text to tokenize.
    Text(String),
    /// Token ids.
    Tokens(Vec<Token>),
    /// A conversation for the chat template.
    Chat(Chat),
}

/// A conversation; what is structured comes as JSON.
#[derive(FromPyObject, Debug)]
#[pyo3(from_item_all)]
pub struct Chat {
    messages: String,
    tools: Option<String>,
    template: Option<String>,
    template_kwargs: String,
    add_generation_prompt: bool,
    continue_final_message: bool,
}

impl PromptSource {
    /// The prompt to submit, and its text where a template made it.
    pub fn resolve(self, text: &TextSide) -> Result<(Prompt, Option<String>), Failure> {
        match self {
            Self::Text(text) => Ok((Prompt::Text { text, add_special_tokens: true }, None)),
            Self::Tokens(tokens) => Ok((Prompt::Tokens(tokens), None)),
            Self::Chat(chat) => {
                let text = chat.render(text)?;
                Ok((Prompt::Text { text: text.clone(), add_special_tokens: false }, Some(text)))
            }
        }
    }
}

impl Chat {
    /// The text that the conversation becomes, special tokens included.
    pub fn render(&self, text: &TextSide) -> Result<String, Failure> {
        let template = self.template(text)?;
        let messages: Vec<Value> = parse("messages", &self.messages)?;
        let tools: Option<Vec<Value>> =
            self.tools.as_deref().map(|tools| parse("tools", tools)).transpose()?;
        let kwargs: Map<String, Value> = parse("chat_template_kwargs", &self.template_kwargs)?;
        let messages = prepare_messages(&messages, &template, text.format)?;
        let request = ChatRequest {
            messages: &messages,
            tools: tools.as_deref(),
            documents: None,
            add_generation_prompt: self.add_generation_prompt,
            continue_final_message: self.continue_final_message,
            kwargs: Some(&kwargs),
        };
        Ok(template.render(&request)?)
    }

    fn template(&self, text: &TextSide) -> Result<Arc<ChatTemplate>, Failure> {
        match (&self.template, &text.model.chat_template) {
            (Some(source), _) => Ok(Arc::new(ChatTemplate::new(source, specials(&text.model.tokenizer))?)),
            (None, Some(template)) => Ok(Arc::clone(template)),
            (None, None) => Err(Failure::Invalid(
                "messages: the model has no chat template; give one as chat_template, or use generate"
                    .to_owned(),
            )),
        }
    }
}

fn parse<T: DeserializeOwned>(field: &str, json: &str) -> Result<T, Failure> {
    serde_json::from_str(json).map_err(|error| Failure::Invalid(format!("{field}: {error}")))
}

/// The special tokens that templates know by name.
fn specials(tokenizer: &Tokenizer) -> BTreeMap<String, String> {
    let named = [("bos_token", tokenizer.bos()), ("eos_token", tokenizer.eos())];
    let piece =
        |(name, token): (&str, Option<Token>)| Some((name.to_owned(), tokenizer.piece(token?)?.to_owned()));
    named.into_iter().filter_map(piece).collect()
}
