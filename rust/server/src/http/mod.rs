//! The HTTP server: routes and middleware on top of the client.
//!
//! HTTP/1.1, in clear text; a proxy in front does TLS. What is not obvious:
//!
//! - Fields that are known but not supported yet are refused by name when they
//!   would change the outcome (`routes/convert.rs` has the list); fields that
//!   nobody knows are ignored.
//! - A streamed chunk holds what has come since the last one: one token for a
//!   reader that keeps up, more for a slow one.
//! - While the server drains, the socket stays open: `/health` and new
//!   generation calls get 503, so that balancers see it leave.
//! - Of request bodies over 64 KiB as much is held at once as eight of the longest
//!   allowed take; others wait, and get 503 after two minutes.
//! - `usage.prompt_tokens_details.cached_tokens` is an option.
//! - Metrics carry the prefix `vllm:`, which dashboards already read.
//! - With keys set, `/v1...` and `/reset_prefix_cache` ask for one; `/health`,
//!   `/metrics`, `/tokenize` and the rest are open.

mod bodies;
pub mod config;
mod error;
mod excerpt;
mod listen;
mod middleware;
mod request;
mod router;
mod routes;
mod serve;
mod sse;
mod state;

pub use self::config::{CorsConfig, ServerConfig};
pub use self::listen::{BoundListener, bind};
pub use self::middleware::auth::tenant;
pub use self::serve::{ServerHandle, serve};
