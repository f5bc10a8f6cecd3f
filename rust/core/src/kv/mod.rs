//! Paged KV memory: who holds which block of the device's cache.
//!
//! A block is free (in [`pool`]), leased (one or more sequences hold it) or
//! cached (nobody holds it, but the [`radix`] tree still knows its content and
//! [`evict`] may take it back). [`manager`] is the only owner; [`check`] states
//! the laws that hold after every operation. [`tiers`] keeps what the device gave
//! up in host memory and on disk.

pub mod check;
mod events;
mod evict;
mod hash;
mod host;
mod identity;
mod index;
pub mod manager;
#[cfg(test)]
mod oracle;
mod pins;
mod pool;
mod radix;
pub mod tiers;

pub use events::{KvEvent, KvEvents};
pub use identity::BlockHash;
pub use manager::{KvConfig, KvManager, Lease};
pub use tiers::{Copies, TierConfig};
