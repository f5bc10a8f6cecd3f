//! Octavo's core: scheduler, paged KV memory, prefix cache and the frames that
//! carry a step's work to the device.
//!
//! The crate is pure and synchronous. It reads no clock, draws no random number
//! and starts no thread; whoever drives it passes time in and moves bytes out.

pub mod engine;
pub mod error;
pub mod event;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
pub mod frame;
pub mod ids;
mod kv;
pub mod limits;
pub mod request;
mod sched;
pub mod stats;
pub mod transfer;

pub use engine::{Engine, Plan};
pub use error::{Error, Kind, Result};
pub use event::{CachedTokens, Event, EventKind, FinishReason, TokenLogprobs};
pub use ids::{BlockId, RequestId, Slot, Token};
pub use kv::{BlockHash, Keep, KvEvent, KvEvents};
pub use limits::{EngineLimits, GroupLimits, Policy};
pub use request::{Deadlines, EngineRequest, Retain, SamplingParams, StopRules};
pub use sched::LPM_PATIENCE;
pub use stats::Stats;
pub use transfer::Transfer;
