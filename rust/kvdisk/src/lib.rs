//! The disk tier of KV blocks: a folder of files, each with one block's content under the name of its hash.
//!
//! [`DiskStore`] moves bytes between slots of the host tier and files on its own threads. It knows nothing of tokens,
//! models or requests: which content is worth keeping is the engine core's business. What it promises is that a
//! fetch gives exactly the bytes that were stored under that hash for this fingerprint, or an error. Nothing in the
//! folder is believed: every file has a header ([`mod@header`]) and a checksum that each fetch verifies.
//!
//! Files are not synchronised to the device: they survive the death of the process, not always that of the machine,
//! after which a file may be short or zero. Those are found damaged and dropped, as in a cache they may be.

mod error;
mod folder;
mod header;
mod lru;
mod memory;
mod queue;
mod scan;
mod store;
mod warn;

pub use error::{Error, Result};
pub use memory::HostMemory;
pub use store::{DiskStore, Done};

use std::path::PathBuf;

/// The name of a block's content: 32 bytes, the same in all tiers.
pub type Hash = [u8; 32];

/// Where and how blocks are kept.
#[derive(Clone, Debug)]
pub struct DiskConfig {
    /// The folder for all models, made (0700) if it is missing. This store uses one subfolder of it.
    pub path: PathBuf,
    /// Over it the least recently used files are deleted. Bytes of files, headers included.
    pub capacity_bytes: u64,
    /// Of model, weights and layout: names the subfolder and is in each header.
    pub fingerprint: [u8; 32],
    /// Bytes of each block.
    pub block_bytes: usize,
}

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Write a slot of the host memory to disk, over what was there under this name.
    Store {
        /// The content's name.
        hash: Hash,
        /// Where it is.
        slot: u32,
    },
    /// Read content into a slot of the host memory. If this fails, what the slot holds is undefined.
    Fetch {
        /// The content's name.
        hash: Hash,
        /// Where it goes.
        slot: u32,
    },
    /// Delete content.
    Delete {
        /// The content's name.
        hash: Hash,
    },
    /// Delete everything that earlier jobs stored. Later jobs wait for it.
    Clear,
}

impl Job {
    /// The content that the job is about; none if it is about all.
    pub fn hash(&self) -> Option<Hash> {
        match self {
            Self::Store { hash, .. } | Self::Fetch { hash, .. } | Self::Delete { hash } => Some(*hash),
            Self::Clear => None,
        }
    }
}
