//! The HTTP server.

use octavo_server::{BoundListener, ServerConfig, ServerHandle};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::client::EngineClient;
use crate::engine::duration;
use crate::enter::{Failure, enter, run};

/// A socket that is bound, and the options to serve it with.
#[pyclass(frozen, module = "octavo._core")]
#[derive(Debug)]
pub struct Listener {
    config: ServerConfig,
    bound: Mutex<Option<BoundListener>>,
}

#[pymethods]
impl Listener {
    /// Bind the address in `config`, octavo_server's ServerConfig as JSON. ValueError that says what to do
    /// where it is in use.
    #[new]
    fn new(py: Python<'_>, config: &str) -> PyResult<Self> {
        enter(py, || {
            let config: ServerConfig = serde_json::from_str(config)
                .map_err(|error| Failure::Internal(format!("the server's options: {error}")))?;
            let bound = octavo_server::bind(&config)?;
            Ok::<_, Failure>(Self { config, bound: Mutex::new(Some(bound)) })
        })
    }

    /// Serve from `threads` threads; once only. SIGTERM and SIGINT drain the server, a second one stops it.
    fn serve(&self, py: Python<'_>, client: &EngineClient, threads: usize) -> PyResult<Server> {
        enter(py, || {
            let bound = self.bound.lock().take();
            let bound =
                bound.ok_or_else(|| Failure::Internal("the listener is already served".to_owned()))?;
            let handle =
                octavo_server::serve(bound, client.client.clone(), self.config.clone(), threads, true)?;
            Ok::<_, Failure>(Server(handle))
        })
    }
}

/// A running server; it ends when it is dropped.
#[pyclass(frozen, module = "octavo._core")]
#[derive(Debug)]
pub struct Server(ServerHandle);

#[pymethods]
impl Server {
    /// http://127.0.0.1:8000 or unix:/path.
    #[getter]
    fn address(&self) -> &str {
        self.0.address()
    }

    /// The port, 0 on a Unix socket.
    #[getter]
    fn port(&self) -> u16 {
        self.0.port()
    }

    /// Drain, then stop; a second call stops at once.
    fn shutdown(&self) {
        self.0.shutdown();
    }

    /// Wait up to `timeout_s` seconds; True once the server has ended.
    fn wait(&self, py: Python<'_>, timeout_s: f64) -> PyResult<bool> {
        let timeout = duration(timeout_s)?;
        run(py, || self.0.wait(timeout))
    }
}
