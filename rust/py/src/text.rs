//! The model's text side.

use std::path::PathBuf;
use std::sync::Arc;

use octavo_core::Token;
use octavo_text::{ContentFormat, Overrides, TextModel as Model};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::enter::{Failure, enter, run};
use crate::prompt::Chat;

/// Tokenizer, chat template and generation defaults of a model.
#[pyclass(frozen, module = "octavo._core")]
#[derive(Debug)]
pub struct TextModel(pub Arc<TextSide>);

/// What doors share of a model's text side.
#[derive(Debug)]
pub struct TextSide {
    /// Tokenizer, template and defaults.
    pub model: Model,
    /// The form in which the template gets message content.
    pub format: ContentFormat,
}

#[pymethods]
impl TextModel {
    /// Read a model's files: a folder or a .gguf file. `tokenizer` and `chat_template` replace its own.
    #[new]
    fn new(
        py: Python<'_>,
        model: PathBuf,
        tokenizer: Option<PathBuf>,
        chat_template: Option<String>,
        content_format: &str,
    ) -> PyResult<Self> {
        let format = match content_format {
            "auto" => ContentFormat::Auto,
            "string" => ContentFormat::String,
            "openai" => ContentFormat::OpenAi,
            other => return Err(Failure::Invalid(format!("unknown content format {other}")).into()),
        };
        let model = enter(py, || Model::open(&model, &Overrides { tokenizer, chat_template }))?;
        Ok(Self(Arc::new(TextSide { model, format })))
    }

    /// Tokens of `text`; special tokens in it are recognised.
    fn encode(&self, py: Python<'_>, text: &str, add_special_tokens: bool) -> PyResult<Vec<Token>> {
        enter(py, || self.0.model.tokenizer.encode(text, add_special_tokens, usize::MAX))
    }

    /// Text of tokens.
    fn decode(&self, py: Python<'_>, tokens: Vec<Token>, skip_special_tokens: bool) -> PyResult<String> {
        run(py, || self.0.model.tokenizer.decode(&tokens, skip_special_tokens))
    }

    /// The text that a conversation becomes.
    fn render(&self, py: Python<'_>, chat: Chat) -> PyResult<String> {
        enter(py, || chat.render(&self.0))
    }

    /// True when conversations can be rendered.
    #[getter]
    fn has_chat_template(&self) -> bool {
        self.0.model.chat_template.is_some()
    }

    /// Tokens in the vocabulary.
    #[getter]
    fn vocab_size(&self) -> usize {
        self.0.model.tokenizer.vocab_size()
    }

    /// The beginning-of-sequence token.
    #[getter]
    fn bos_token_id(&self) -> Option<Token> {
        self.0.model.tokenizer.bos()
    }

    /// The tokenizer's own end-of-sequence token.
    #[getter]
    fn eos_token_id(&self) -> Option<Token> {
        self.0.model.tokenizer.eos()
    }

    /// Tokens that end the output.
    #[getter]
    fn eos_token_ids(&self) -> Vec<Token> {
        self.0.model.eos_token_ids.clone()
    }

    /// Sampling values that the model's authors set.
    #[getter]
    fn sampling_defaults<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let sampling = &self.0.model.sampling;
        let described = PyDict::new(py);
        let add = |name: &str, value: Option<Bound<'py, PyAny>>| match value {
            Some(value) => described.set_item(name, value),
            None => Ok(()),
        };
        let float = |value: Option<f32>| {
            value.map(|value| Ok::<_, PyErr>(shortest(value).into_pyobject(py)?.into_any()))
        };
        add("temperature", float(sampling.temperature).transpose()?)?;
        add("top_p", float(sampling.top_p).transpose()?)?;
        add("min_p", float(sampling.min_p).transpose()?)?;
        add("repetition_penalty", float(sampling.repetition_penalty).transpose()?)?;
        let count =
            |value: Option<u32>| value.map(|value| Ok::<_, PyErr>(value.into_pyobject(py)?.into_any()));
        add("top_k", count(sampling.top_k).transpose()?)?;
        add("max_tokens", count(sampling.max_new_tokens).transpose()?)?;
        Ok(described)
    }
}

/// The number that a person would write for `value`: 0.2, not 0.20000000298.
fn shortest(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}
