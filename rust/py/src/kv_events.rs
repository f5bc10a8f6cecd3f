//! Publishing what the prefix cache holds.

use octavo_server::kv_events::{KvEventsConfig, KvPublisher as Publisher};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::enter::{Failure, enter};

/// A publisher of KV events, bound to its endpoints. An engine takes it over.
#[pyclass(frozen, module = "octavo._core")]
#[derive(Debug)]
pub struct KvPublisher(Mutex<Option<Publisher>>);

#[pymethods]
impl KvPublisher {
    /// Bind the endpoints in `config`, octavo_server's KvEventsConfig as JSON. ValueError that names the one
    /// that cannot be bound.
    #[new]
    fn new(py: Python<'_>, config: &str) -> PyResult<Self> {
        enter(py, || {
            let config: KvEventsConfig = serde_json::from_str(config)
                .map_err(|error| Failure::Internal(format!("the options of KV events: {error}")))?;
            Ok::<_, Failure>(Self(Mutex::new(Some(Publisher::start(config)?))))
        })
    }
}

impl KvPublisher {
    /// The publisher, for the one engine that has it.
    pub fn take(&self) -> Result<Publisher, Failure> {
        let taken = self.0.lock().take();
        taken.ok_or_else(|| Failure::Internal("the publisher of KV events has an engine already".to_owned()))
    }
}
