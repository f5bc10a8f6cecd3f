//! Request bodies, and the memory of a conversation between its turns.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::workload::{Prompt, Turn};

/// Which of the two APIs is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `/v1/completions`.
    Completions,
    /// `/v1/chat/completions`.
    Chat,
}

/// What is the same in every body.
#[derive(Clone, Debug)]
pub struct Template {
    /// The API that bodies are for.
    pub api: Api,
    /// All fields but prompt and length.
    pub fields: Map<String, Value>,
}

/// A conversation so far.
#[derive(Debug)]
pub struct Dialogue<'a> {
    template: &'a Template,
    /// Of the kind that the API takes.
    said: Prompt,
}

impl Template {
    /// The body that asks for the answer to `turn`, without a past.
    pub fn body(&self, turn: &Turn) -> Bytes {
        Dialogue::new(self).ask(turn)
    }
}

impl<'a> Dialogue<'a> {
    /// Nothing said yet.
    pub fn new(template: &'a Template) -> Self {
        let said = match template.api {
            Api::Completions => Prompt::Text(String::new()),
            Api::Chat => Prompt::Messages(Vec::new()),
        };
        Self { template, said }
    }

    /// Adds the user's turn; the body asks for the reply to all so far.
    pub fn ask(&mut self, turn: &Turn) -> Bytes {
        match (&mut self.said, &turn.prompt) {
            (Prompt::Text(said), Prompt::Text(text)) => said.push_str(text),
            (Prompt::Messages(said), Prompt::Text(text)) => said.push(message("user", text)),
            (Prompt::Messages(said), Prompt::Messages(messages)) => said.extend_from_slice(messages),
            (said, prompt) => *said = prompt.clone(),
        }
        let mut fields = self.template.fields.clone();
        fields.insert("max_tokens".into(), turn.output_len.into());
        let (key, value) = match &self.said {
            Prompt::Text(text) => ("prompt", text.as_str().into()),
            Prompt::Ids(ids) => ("prompt", ids.as_slice().into()),
            Prompt::Messages(messages) => ("messages", messages.as_slice().into()),
        };
        fields.insert(key.into(), value);
        Value::Object(fields).to_string().into()
    }

    /// Adds the server's reply. A conversation in ids has a single turn.
    pub fn reply(&mut self, text: &str) {
        match &mut self.said {
            Prompt::Text(said) => said.push_str(text),
            Prompt::Messages(said) => said.push(message("assistant", text)),
            Prompt::Ids(_) => {}
        }
    }
}

fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(text: &str) -> Turn {
        Turn { prompt: Prompt::Text(text.into()), output_len: 4 }
    }

    fn second_body(api: Api) -> Value {
        let template = Template { api, fields: Map::new() };
        let mut dialogue = Dialogue::new(&template);
        let _ = dialogue.ask(&turn(" one"));
        dialogue.reply(" two");
        serde_json::from_slice(&dialogue.ask(&turn(" three"))).unwrap()
    }

    #[test]
    fn a_later_turn_sends_all_that_was_said() {
        assert_eq!(second_body(Api::Completions), json!({"prompt": " one two three", "max_tokens": 4}));
        let messages = json!([
            {"role": "user", "content": " one"},
            {"role": "assistant", "content": " two"},
            {"role": "user", "content": " three"},
        ]);
        assert_eq!(second_body(Api::Chat), json!({"messages": messages, "max_tokens": 4}));
    }

    #[test]
    fn ids_are_sent_as_ids() {
        let template = Template { api: Api::Completions, fields: Map::new() };
        let body = template.body(&Turn { prompt: Prompt::Ids(vec![5, 6]), output_len: 1 });
        assert_eq!(body, r#"{"max_tokens":1,"prompt":[5,6]}"#);
    }
}
