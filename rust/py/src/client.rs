//! The way from both doors to the engine.

use std::sync::Arc;

use octavo_server::{Client, ClientConfig};
use pyo3::prelude::*;

use crate::engine::EngineHandle;
use crate::enter::{Failure, enter};
use crate::text::{TextModel, TextSide};

/// An engine together with the model's text side.
#[pyclass(frozen, module = "octavo._core")]
#[derive(Debug)]
pub struct EngineClient {
    /// Options in, text out.
    pub client: Client,
    /// For what the client does not do: rendering conversations.
    pub text: Arc<TextSide>,
}

#[pymethods]
impl EngineClient {
    /// `config` is octavo_server's ClientConfig as JSON.
    #[new]
    fn new(py: Python<'_>, engine: &EngineHandle, text: &TextModel, config: &str) -> PyResult<Self> {
        enter(py, || {
            let config: ClientConfig = serde_json::from_str(config)
                .map_err(|error| Failure::Internal(format!("the client's options: {error}")))?;
            let model = &text.0.model;
            let tokenizer = Arc::clone(&model.tokenizer);
            let client = Client::new(engine.0.clone(), tokenizer, model.chat_template.clone(), config);
            Ok::<_, Failure>(Self { client, text: Arc::clone(&text.0) })
        })
    }
}
