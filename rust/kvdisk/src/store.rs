//! The store: two threads that do jobs, and the order of use.

use crate::folder::Folder;
use crate::header::Format;
use crate::lru::Lru;
use crate::queue::Queue;
use crate::warn::Warnings;
use crate::{DiskConfig, Error, Hash, HostMemory, Job, Result, scan};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long stores that are queued may go on when the store is dropped.
const CLOSING: Duration = Duration::from_secs(5);

/// A job that is over.
#[derive(Debug)]
pub struct Done {
    /// Which.
    pub job: Job,
    /// Whether it was done.
    pub outcome: Result<()>,
    /// How long it took, without the time in the queue.
    pub time: Duration,
    /// Content that was deleted to make room.
    pub evicted: Vec<Hash>,
}

type Callback = Box<dyn Fn(Done) + Send + Sync>;

/// Blocks in files, moved by two threads of its own: one fetches, the other fetches first and then stores and deletes.
///
/// Dropping it does the stores that are queued, for at most five seconds; every job gets its `done`.
pub struct DiskStore {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    folder: Folder,
    format: Format,
    capacity_bytes: u64,
    memory: HostMemory,
    done: Callback,
    lru: Mutex<Lru>,
    work: Mutex<Work>,
    /// Something may be ready, or the store closes.
    wake: Condvar,
    warnings: Warnings,
}

#[derive(Default)]
struct Work {
    queue: Queue,
    /// Set when the store closes: until when.
    closing: Option<Instant>,
}

impl DiskStore {
    /// Opens or makes the folder, takes its lock, scans it and starts the threads. Returns the hashes that are there,
    /// the least recently used first. Files that are foreign or damaged are told of in one warning.
    ///
    /// `done` is called from a store thread after each job, in order for the jobs of one hash. It must neither panic
    /// nor wait for whoever drops the store.
    ///
    /// # Errors
    ///
    /// The folder cannot be made, written or locked, is another user's or another server's, or the capacity is less
    /// than one file.
    #[allow(clippy::needless_pass_by_value, reason = "it is made for this call")]
    pub fn open(config: DiskConfig, memory: HostMemory, done: Callback) -> Result<(Self, Vec<Hash>)> {
        let format = Format { fingerprint: config.fingerprint, block_bytes: config.block_bytes };
        let keep = config.capacity_bytes / format.file_bytes();
        if keep == 0 {
            return Err(Error::Capacity {
                capacity_bytes: config.capacity_bytes,
                file_bytes: format.file_bytes(),
            });
        }
        let folder = Folder::open(&config, format)?;
        let hashes = scan::scan(&folder, usize::try_from(keep).unwrap_or(usize::MAX));
        let mut lru = Lru::default();
        for hash in &hashes {
            lru.insert(*hash);
        }

        let shared = Arc::new(Shared {
            folder,
            format,
            capacity_bytes: config.capacity_bytes,
            memory,
            done,
            lru: Mutex::new(lru),
            work: Mutex::default(),
            wake: Condvar::new(),
            warnings: Warnings::default(),
        });
        let mut store = Self { shared, threads: Vec::new() };
        for (name, fetches_only) in [("kv-disk-fetch", true), ("kv-disk-store", false)] {
            let shared = Arc::clone(&store.shared);
            let thread =
                std::thread::Builder::new().name(name.into()).spawn(move || shared.run(fetches_only));
            // An error drops the store, which ends the thread that did start.
            let thread =
                thread.map_err(|e| Error::open("start a thread for", store.shared.folder.path(), e))?;
            store.threads.push(thread);
        }
        Ok((store, hashes))
    }

    /// Queues a job and returns at once. Jobs of one hash are done in order, fetches before stores of other hashes.
    /// The queue has no limit of its own: stores and fetches each hold a slot of the host tier.
    pub fn submit(&self, job: Job) {
        if let Job::Fetch { hash, .. } = &job {
            // Now, not when it is read: stores that run meanwhile then make room elsewhere.
            self.shared.lru().touch(hash);
        }
        self.shared.work().queue.push(job);
        self.shared.wake.notify_all();
    }

    /// Bytes of all files that are in use.
    pub fn bytes_used(&self) -> u64 {
        self.shared.bytes(self.shared.lru().len())
    }
}

impl Drop for DiskStore {
    fn drop(&mut self) {
        self.shared.work().closing = Some(Instant::now() + CLOSING);
        self.shared.wake.notify_all();
        for thread in self.threads.drain(..) {
            // A panic has been reported by the hook; the memory is not used any more, which is what counts.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for DiskStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiskStore").field("folder", &self.shared.folder.path()).finish_non_exhaustive()
    }
}

impl Shared {
    fn lru(&self) -> MutexGuard<'_, Lru> {
        self.lru.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bytes(&self, files: usize) -> u64 {
        self.format.file_bytes().saturating_mul(files as u64)
    }

    /// A thread's life: jobs until the store closes and nothing is left.
    fn run(&self, fetches_only: bool) {
        let mut work = self.work();
        loop {
            if let Some(job) = work.queue.take(fetches_only) {
                let late = work.closing.is_some_and(|until| {
                    matches!(job, Job::Fetch { .. })
                        || (matches!(job, Job::Store { .. }) && Instant::now() >= until)
                });
                drop(work);
                let began = Instant::now();
                let mut evicted = Vec::new();
                let outcome = if late { Err(Error::Closed) } else { self.execute(job, &mut evicted) };
                if let Err(error) = &outcome {
                    self.warnings.report(error);
                }
                (self.done)(Done { job, outcome, time: began.elapsed(), evicted });
                work = self.work();
                work.queue.finish(&job);
                self.wake.notify_all();
            } else if work.closing.is_some() && work.queue.is_idle() {
                return;
            } else {
                work = self.wake.wait(work).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn execute(&self, job: Job, evicted: &mut Vec<Hash>) -> Result<()> {
        match job {
            Job::Store { hash, slot } => self.store(hash, slot, evicted),
            Job::Fetch { hash, slot } => self.fetch(hash, slot),
            Job::Delete { hash } => {
                // Forgotten even if the file cannot be deleted: it must not be used again.
                self.lru().remove(&hash);
                self.folder.remove(&hash)
            }
            Job::Clear => {
                let hashes = self.lru().take();
                hashes.iter().map(|hash| self.folder.remove(hash)).fold(Ok(()), Result::and)
            }
        }
    }

    fn store(&self, hash: Hash, slot: u32, evicted: &mut Vec<Hash>) -> Result<()> {
        // SAFETY: this job is a store of this slot; `HostMemory::new` says that there is no other job for it.
        let payload =
            unsafe { self.memory.read(slot, self.format.block_bytes) }.ok_or_else(|| self.no_slot(slot))?;
        self.make_room(&hash, evicted)?;
        self.folder.write(&hash, payload)?;
        self.lru().insert(hash);
        Ok(())
    }

    /// Deletes the least recently used files until one more fits. Only one thread stores, so it still fits afterwards.
    fn make_room(&self, hash: &Hash, evicted: &mut Vec<Hash>) -> Result<()> {
        loop {
            let oldest = {
                let lru = self.lru();
                if lru.contains(hash) || self.bytes(lru.len() + 1) <= self.capacity_bytes {
                    return Ok(());
                }
                lru.oldest()
            };
            let Some(oldest) = oldest else { return Ok(()) };
            self.folder.remove(&oldest)?;
            self.lru().remove(&oldest);
            evicted.push(oldest);
        }
    }

    fn fetch(&self, hash: Hash, slot: u32) -> Result<()> {
        if !self.lru().contains(&hash) {
            return Err(Error::Missing);
        }
        // SAFETY: this job is a fetch into this slot; `HostMemory::new` says that there is no other job for it.
        let payload =
            unsafe { self.memory.write(slot, self.format.block_bytes) }.ok_or_else(|| self.no_slot(slot))?;
        let read = self.folder.read(&hash, payload);
        match &read {
            Err(Error::Missing) => self.lru().remove(&hash),
            Err(Error::Damaged { .. }) => {
                self.lru().remove(&hash);
                self.folder.remove(&hash)?;
            }
            // What cannot be opened or read now stays counted, and is written anew by the next store of it.
            _ => {}
        }
        read
    }

    fn no_slot(&self, slot: u32) -> Error {
        Error::Slot { slot, slots: self.memory.slots(self.format.block_bytes) }
    }
}
