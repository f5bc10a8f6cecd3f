//! The crate's error.

use std::io;
use std::path::{Path, PathBuf};

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;

/// Why the folder cannot be used, or why a job was not done.
#[derive(Debug)]
pub enum Error {
    /// The folder cannot be used at all.
    Open {
        /// What could not be done.
        action: &'static str,
        /// With which file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Another server uses the folder.
    Locked {
        /// The lock file.
        path: PathBuf,
        /// What the other server wrote into it: its process id.
        pid: String,
    },
    /// Somebody else's folder: who may write in it can decide what the model has read.
    Owner {
        /// The folder.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Who we are.
        user: u32,
    },
    /// The capacity is less than one file.
    Capacity {
        /// What was given.
        capacity_bytes: u64,
        /// The size of one file.
        file_bytes: u64,
    },
    /// A file could not be read, written or deleted.
    Io {
        /// What could not be done.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A file is not what it was written as. It has been deleted.
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: &'static str,
    },
    /// No such content is here.
    Missing,
    /// The host memory has no such slot.
    Slot {
        /// Which slot was named.
        slot: u32,
        /// How many there are.
        slots: usize,
    },
    /// The store was closed before it came to this.
    Closed,
}

impl Error {
    pub(crate) fn open(action: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Open { action, path: path.to_owned(), source: source.into() }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Open { action, path, source } => write!(
                f,
                "cannot {action} {}: {source}; the KV cache on disk needs a folder that this user may write, on a \
                 file system with room: give another with --kv-disk-path",
                path.display()
            ),
            Self::Locked { path, pid } => write!(
                f,
                "another server (process {pid}) keeps its KV cache here and holds {}; stop it, or give this one a \
                 folder of its own with --kv-disk-path",
                path.display()
            ),
            Self::Owner { path, owner, user } => write!(
                f,
                "{} belongs to user {owner} and this is user {user}; who can write there decides what the model has \
                 read, so it is not used: delete it, or give another folder with --kv-disk-path",
                path.display()
            ),
            Self::Capacity { capacity_bytes, file_bytes } => write!(
                f,
                "the KV cache on disk may hold {capacity_bytes} bytes, which is less than one block's file of \
                 {file_bytes} bytes; give more with --kv-disk-size"
            ),
            Self::Io { action, path, source } => write!(f, "cannot {action} {}: {source}", path.display()),
            Self::Damaged { path, reason } => write!(f, "{} is damaged: {reason}", path.display()),
            Self::Missing => f.write_str("the block is not on disk"),
            Self::Slot { slot, slots } => write!(f, "the host tier has {slots} slots and no slot {slot}"),
            Self::Closed => f.write_str("the store was closed first"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open { source, .. } | Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
