//! A store over a real folder, with host memory of its own.

#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use octavo_kvdisk::{DiskConfig, DiskStore, Done, Error, Hash, HostMemory, Job};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

pub const BLOCK: usize = 1000;
pub const SLOTS: usize = 8;
/// A header is 104 bytes.
pub const FILE: u64 = BLOCK as u64 + 104;

pub struct Tier {
    store: Option<DiskStore>,
    memory: *mut [u8],
    done: Receiver<Done>,
    /// What open said is there, least recently used first.
    pub found: Vec<Hash>,
}

pub fn config(path: &Path, files: u64) -> DiskConfig {
    DiskConfig {
        path: path.to_owned(),
        capacity_bytes: files * FILE,
        fingerprint: [0xf0; 32],
        block_bytes: BLOCK,
    }
}

/// The folder that a store of `config` uses.
pub fn root(path: &Path) -> PathBuf {
    path.join("f0".repeat(32))
}

pub fn hash(name: u8) -> Hash {
    std::array::from_fn(|i| name.wrapping_mul(37).wrapping_add(i as u8))
}

pub fn file(path: &Path, hash: &Hash) -> PathBuf {
    let name = hash.iter().fold(String::new(), |name, byte| format!("{name}{byte:02x}"));
    root(path).join(&name[..2]).join(name)
}

/// Content that differs from block to block and from byte to byte.
pub fn content(hash: &Hash) -> Vec<u8> {
    (0..BLOCK).map(|i| (i as u8).wrapping_mul(31) ^ hash[i % 32] ^ (i >> 8) as u8).collect()
}

impl Tier {
    pub fn open(path: &Path, files: u64) -> Self {
        Self::try_open(&config(path, files)).unwrap()
    }

    pub fn try_open(config: &DiskConfig) -> Result<Self, Error> {
        let memory = Box::into_raw(vec![0u8; BLOCK * SLOTS].into_boxed_slice());
        let (send, done) = channel();
        let send = Mutex::new(send);
        // SAFETY: freed by `drop` after the store; the tests touch a slot only when no job for it is under way.
        let host = unsafe { HostMemory::new(memory.cast(), BLOCK * SLOTS) };
        let report = Box::new(move |done| send.lock().unwrap().send(done).unwrap());
        let (store, found) = DiskStore::open(config.clone(), host, report)?;
        Ok(Self { store: Some(store), memory, done, found })
    }

    pub fn slot(&mut self, slot: u32) -> &mut [u8] {
        // SAFETY: the callers wait for each job before they look.
        unsafe { &mut (&mut *self.memory)[slot as usize * BLOCK..][..BLOCK] }
    }

    pub fn submit(&self, job: Job) {
        self.store.as_ref().unwrap().submit(job);
    }

    pub fn bytes_used(&self) -> u64 {
        self.store.as_ref().unwrap().bytes_used()
    }

    pub fn wait(&self) -> Done {
        self.done.recv_timeout(Duration::from_secs(60)).expect("every job is reported")
    }

    pub fn run(&self, job: Job) -> Done {
        self.submit(job);
        let done = self.wait();
        assert_eq!(done.job, job);
        done
    }

    pub fn store(&mut self, hash: Hash) -> Done {
        self.slot(0).copy_from_slice(&content(&hash));
        self.run(Job::Store { hash, slot: 0 })
    }

    /// Fetches into a slot that held something else.
    pub fn fetch(&mut self, hash: Hash) -> Result<Vec<u8>, Error> {
        self.slot(1).fill(0xee);
        self.run(Job::Fetch { hash, slot: 1 }).outcome?;
        Ok(self.slot(1).to_vec())
    }

    /// Closes the store and returns what was reported until its end.
    pub fn close(mut self) -> Vec<Done> {
        self.store = None;
        self.done.try_iter().collect()
    }
}

impl Drop for Tier {
    fn drop(&mut self) {
        self.store = None;
        // SAFETY: from `into_raw`, and the store is gone.
        drop(unsafe { Box::from_raw(self.memory) });
    }
}
