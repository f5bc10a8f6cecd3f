//! Octavo's serving side: the queue between doors and the engine core, the
//! client that both doors use, and the HTTP server.
//!
//! - [`engine`]: [`EngineHandle`] owns the core. The step loop calls
//!   [`EngineHandle::plan`] and [`EngineHandle::commit`]; doors submit and read.
//! - [`client`]: [`Client::generate`] turns text and options into engine
//!   requests and events back into text. It knows nothing of HTTP.
//! - [`http`]: [`bind`] and [`serve`], with the routes on top of the client.
//! - [`kv_events`]: tells routers what the prefix cache holds.
//! - [`metrics`]: counters and histograms in Prometheus' text format.

pub mod client;
pub mod engine;
pub mod http;
pub mod kv_events;
pub mod metrics;

pub use client::{Client, ClientConfig, GenerateRequest, OutputStream, SamplingOptions};
pub use engine::{EngineHandle, Planned};
pub use http::{BoundListener, ServerConfig, ServerHandle, bind, serve};
