//! The extension module `octavo._core`: the only crate that knows Python.
//!
//! Every call that can take longer than a look-up goes through
//! [`enter::enter`], which releases the GIL, catches panics and maps errors.

#![expect(clippy::needless_pass_by_value, reason = "PyO3 extracts arguments by value")]

mod buffer;
mod call;
mod client;
mod cpu;
mod cpu_int8;
mod door;
mod engine;
mod enter;
mod frame;
mod gguf;
mod kv_events;
mod log;
mod options;
mod program;
mod prompt;
mod quantized;
mod server;
mod text;
mod update;

use pyo3::prelude::*;

/// Octavo's Rust core, as seen from Python.
#[pymodule]
mod _core {
    #[pymodule_export]
    use super::client::EngineClient;
    #[pymodule_export]
    use super::door::{Door, Session};
    #[pymodule_export]
    use super::engine::{EngineHandle, Planned};
    #[pymodule_export]
    use super::enter::OverloadedError;
    #[pymodule_export]
    use super::frame::frame_layout;
    #[pymodule_export]
    use super::gguf::read_gguf;
    #[pymodule_export]
    use super::kv_events::KvPublisher;
    #[pymodule_export]
    use super::log::start_logging;
    #[pymodule_export]
    use super::server::{Listener, Server};
    #[pymodule_export]
    use super::text::TextModel;
    #[pymodule_export]
    use super::update::Update;

    use super::{Bound, PyModule, PyModuleMethods, PyResult};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::cpu::register(module)?;
        super::cpu_int8::register(module)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
