//! What the engine asks of the disk tier.
//!
//! The engine knows which content is where; moving bytes between a slot of the
//! host tier and a file is the driver's work, in any order and at any time.

use crate::kv::BlockHash;

/// One thing to do for the disk tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// Write a slot of the host tier to disk.
    Store {
        /// The content's name.
        hash: BlockHash,
        /// Where it is.
        slot: u32,
    },
    /// Read content from disk into a slot of the host tier.
    Fetch {
        /// The content's name.
        hash: BlockHash,
        /// Where it goes.
        slot: u32,
    },
    /// Forget content.
    Delete {
        /// The content's name.
        hash: BlockHash,
    },
    /// Forget everything.
    Clear,
}
