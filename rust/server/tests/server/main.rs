//! The server over real sockets: the real core with a device without a model.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cache_control;
mod chat;
mod client;
mod completions;
mod errors;
mod harness;
mod lifecycle;
mod metrics;
mod middleware;
mod operations;
mod scheduling;
