//! The HTTP server: routes and middleware on top of the client.

pub mod config;
mod error;
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
pub use self::serve::{ServerHandle, serve};
