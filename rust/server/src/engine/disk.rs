//! The disk tier between the core, which decides, and the store, which moves bytes.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use memmap2::{MmapOptions, MmapRaw};
use octavo_core::{BlockHash, Error, Result, Transfer};
use octavo_kvdisk::{DiskConfig, DiskStore, Done, HostMemory, Job};

use super::Shared;
use crate::metrics::{Metrics, Transferring};

/// Where the disk tier is and what it holds.
#[derive(Debug)]
pub struct DiskTierConfig {
    /// The host tier's memory: a file that can be mapped.
    pub host: OwnedFd,
    /// Its slots.
    pub host_blocks: u32,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// The folder.
    pub path: PathBuf,
    /// Most bytes of files.
    pub capacity_bytes: u64,
    /// Of model and layout.
    pub fingerprint: [u8; 32],
}

/// A transfer that is over.
#[derive(Debug)]
pub(super) struct Transferred {
    pub transfer: Transfer,
    pub done: bool,
    /// Content that the disk gave up for it.
    pub evicted: Vec<BlockHash>,
}

/// The store and the memory that it works on.
pub(super) struct DiskTier {
    store: DiskStore,
    capacity_bytes: u64,
    metrics: Arc<Metrics>,
    /// After the store, whose threads use it.
    _memory: MmapRaw,
}

impl std::fmt::Debug for DiskTier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiskTier").finish_non_exhaustive()
    }
}

impl DiskTier {
    /// Opens the folder; returns what is there, least recently used first.
    pub fn open(config: DiskTierConfig, engine: &Arc<Shared>) -> Result<(Self, Vec<BlockHash>)> {
        let len = config.host_blocks as usize * config.block_bytes;
        let memory = MmapOptions::new()
            .len(len)
            .map_raw(&File::from(config.host))
            .map_err(|error| Error::internal(format!("the host tier's memory cannot be mapped: {error}")))?;
        // SAFETY: the mapping outlives the store (see the fields' order), and the core gives each slot that a
        // transfer uses to nobody else until the transfer is over.
        let host = unsafe { HostMemory::new(memory.as_mut_ptr(), len) };
        let (path, capacity_bytes) = (config.path, config.capacity_bytes);
        let (fingerprint, block_bytes) = (config.fingerprint, config.block_bytes);
        let disk = DiskConfig { path, capacity_bytes, fingerprint, block_bytes };
        let (metrics, engine) = (Arc::clone(&engine.metrics), Arc::downgrade(engine));
        let done = Box::new(move |done| tell(&engine, done));
        let (store, hashes) = DiskStore::open(disk, host, done)
            .map_err(|error| Error::invalid("kv_disk_path", error.to_string()))?;
        let disk = Self { store, capacity_bytes, metrics, _memory: memory };
        Ok((disk, hashes.into_iter().map(BlockHash).collect()))
    }

    /// The share of its capacity that is in use, 0 to 1.
    pub fn usage(&self) -> f64 {
        self.store.bytes_used() as f64 / self.capacity_bytes as f64
    }

    /// Has a transfer done.
    pub fn submit(&self, transfer: Transfer) {
        if let (Some(metrics), Some(which)) = (self.metrics.disk(), transferring(&transfer)) {
            metrics.begun(which);
        }
        self.store.submit(match transfer {
            Transfer::Store { hash, slot } => Job::Store { hash: hash.0, slot },
            Transfer::Fetch { hash, slot } => Job::Fetch { hash: hash.0, slot },
            Transfer::Delete { hash } => Job::Delete { hash: hash.0 },
            Transfer::Clear => Job::Clear,
        });
    }
}

fn transferring(transfer: &Transfer) -> Option<Transferring> {
    match transfer {
        Transfer::Fetch { .. } => Some(Transferring::Read),
        Transfer::Store { .. } => Some(Transferring::Write),
        Transfer::Delete { .. } | Transfer::Clear => None,
    }
}

fn tell(engine: &Weak<Shared>, done: Done) {
    let Some(engine) = Weak::upgrade(engine) else { return };
    let transfer = match done.job {
        Job::Store { hash, slot } => Transfer::Store { hash: BlockHash(hash), slot },
        Job::Fetch { hash, slot } => Transfer::Fetch { hash: BlockHash(hash), slot },
        Job::Delete { hash } => Transfer::Delete { hash: BlockHash(hash) },
        Job::Clear => Transfer::Clear,
    };
    if let (Some(metrics), Some(which)) = (engine.metrics.disk(), transferring(&transfer)) {
        metrics.ended(which, done.outcome.is_ok(), done.time);
    }
    let evicted = done.evicted.into_iter().map(BlockHash).collect();
    engine.inbox.transferred(Transferred { transfer, done: done.outcome.is_ok(), evicted });
}
