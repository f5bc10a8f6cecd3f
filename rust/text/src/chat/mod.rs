//! Chat templates: messages to the text that a model was trained on.

mod content;
mod environment;
mod python;

use std::collections::BTreeMap;
use std::sync::Arc;

use minijinja::Environment;
use serde_json::{Map, Value, json};

pub use content::{ContentFormat, prepare_messages};

use crate::error::{Error, Result};

/// Tells a template what time it is.
pub type Clock = Arc<dyn Fn() -> jiff::civil::DateTime + Send + Sync>;

const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";
/// Ends the last message while it is rendered, so that the text can be cut there.
const CONTINUE_MARK: &str = "OCTAVO_CONTINUE_HERE";
/// Names that a request's own template arguments may not take.
const RESERVED: [&str; 4] = ["messages", "tools", "documents", "add_generation_prompt"];

/// A compiled chat template, with Hugging Face's environment around it. Shared by
/// all requests.
///
/// A template is a program from the model's files: it may take so many steps, nest
/// so deep and print so much, then it is stopped with [`Error::Template`]. Strings that
/// it builds without printing them are not counted, so a template from a stranger
/// should not be used without the operator's consent.
pub struct ChatTemplate {
    environment: Environment<'static>,
    specials: BTreeMap<String, String>,
    has_tool_use: bool,
    accepts: content::Accepts,
}

/// What to render.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChatRequest<'a> {
    /// The conversation, as [`prepare_messages`] leaves it.
    pub messages: &'a [Value],
    /// Tools that the model may call, in OpenAI's form.
    pub tools: Option<&'a [Value]>,
    /// Documents for retrieval templates.
    pub documents: Option<&'a [Value]>,
    /// End with the start of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Leave the last message open, so that the model goes on with it.
    pub continue_final_message: bool,
    /// More variables for the template, such as `enable_thinking`.
    pub kwargs: Option<&'a Map<String, Value>>,
}

impl ChatTemplate {
    /// Compiles `source`. `specials` are the model's special tokens by name (`bos_token`, `eos_token`).
    pub fn new(source: &str, specials: BTreeMap<String, String>) -> Result<Self> {
        Self::with_clock(source, specials, Arc::new(|| jiff::Zoned::now().datetime()))
    }

    /// The same with another clock.
    pub fn with_clock(source: &str, specials: BTreeMap<String, String>, clock: Clock) -> Result<Self> {
        let mut environment = environment::new(clock);
        environment::add(&mut environment, DEFAULT, source)?;
        let mut template =
            Self { environment, specials, has_tool_use: false, accepts: content::Accepts::default() };
        template.accepts = template.probe();
        Ok(template)
    }

    /// Adds the template to use for conversations with tools.
    pub fn add_tool_use(&mut self, source: &str) -> Result<()> {
        environment::add(&mut self.environment, TOOL_USE, source)?;
        self.has_tool_use = true;
        Ok(())
    }

    /// The text for the model, special tokens included: tokenize it without adding them.
    ///
    /// Fails with [`Error::Refused`] if the template itself refuses the messages.
    pub fn render(&self, request: &ChatRequest<'_>) -> Result<String> {
        if !request.continue_final_message {
            return self.render_messages(request, request.messages);
        }
        if request.add_generation_prompt {
            return Err(Error::invalid(
                "continue_final_message",
                "continue_final_message and add_generation_prompt exclude each other: set one of them to false",
            ));
        }
        let messages = content::mark_final(request.messages, CONTINUE_MARK)?;
        let text = self.render_messages(request, &messages)?;
        let cut = text.rfind(CONTINUE_MARK).ok_or_else(|| {
            Error::invalid(
                "continue_final_message",
                "the chat template does not show the last message as it is, so it cannot be continued",
            )
        })?;
        let (kept, rest) = text.split_at(cut);
        // The mark ends in a space; where that is gone, the template trims messages.
        let trimmed = !rest[CONTINUE_MARK.len()..].starts_with(' ');
        Ok(if trimmed { kept.trim_end() } else { kept }.to_owned())
    }

    fn render_messages(&self, request: &ChatRequest<'_>, messages: &[Value]) -> Result<String> {
        let mut context = request.kwargs.cloned().unwrap_or_default();
        if let Some(name) = RESERVED.iter().find(|name| context.contains_key(**name)) {
            return Err(Error::invalid(
                "chat_template_kwargs",
                format!("{name} cannot be given in chat_template_kwargs; use the request's own field"),
            ));
        }
        for (name, text) in &self.specials {
            context.entry(name).or_insert_with(|| json!(text));
        }
        context.insert("messages".to_owned(), json!(messages));
        context.insert("tools".to_owned(), json!(request.tools));
        context.insert("documents".to_owned(), json!(request.documents));
        context.insert("add_generation_prompt".to_owned(), json!(request.add_generation_prompt));
        let with_tools = request.tools.is_some_and(|tools| !tools.is_empty());
        let name = if with_tools && self.has_tool_use { TOOL_USE } else { DEFAULT };
        environment::render(&self.environment, name, &context)
    }

    /// Finds out by trying which forms of content the template shows.
    fn probe(&self) -> content::Accepts {
        content::probe(|messages| {
            let request = ChatRequest { messages, add_generation_prompt: true, ..ChatRequest::default() };
            self.render(&request)
        })
    }
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatTemplate").field("specials", &self.specials).finish_non_exhaustive()
    }
}
