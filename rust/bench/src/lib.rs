//! `octavo-bench`: measures servers and the core.
//!
//! `load` drives any OpenAI-compatible server, `sim` runs the real core in
//! virtual time against a model of a device, `micro` times the core's hot paths, `machine`
//! measures the limits of the machine.

pub mod arrivals;
pub mod distribution;
pub mod error;
pub mod load;
pub mod machine;
pub mod micro;
pub mod output;
mod random;
pub mod sim;

pub use error::{Error, Result};
