//! Paged KV memory: who holds which block of the device's cache.
//!
//! A block is free (in [`pool`]), leased (one or more sequences hold it) or
//! cached (nobody holds it, but the [`radix`] tree still knows its content and
//! [`evict`] may take it back). [`manager`] is the only owner; [`check`] states
//! the laws that hold after every operation. Layers that do not keep every token
//! have a [`group`] of blocks beside, by the rules in [`keep`]. [`tiers`] keeps
//! what the device gave up in host memory and on disk.

mod below;
pub mod check;
mod events;
mod evict;
mod group;
#[cfg(test)]
mod group_oracle;
mod hash;
mod host;
mod identity;
mod index;
mod keep;
mod lease;
pub mod manager;
#[cfg(test)]
mod oracle;
mod pins;
mod pool;
mod prefix;
mod radix;
pub mod tiers;

pub use events::{KvEvent, KvEvents};
pub use group::GroupConfig;
pub use identity::BlockHash;
pub use keep::Keep;
pub use lease::Lease;
pub use manager::{KvConfig, KvManager};
pub use prefix::PrefixMatch;
pub use tiers::{Copies, TierConfig};
