//! Speed of the store: `cargo bench -p octavo-kvdisk [-- FOLDER]`. Without one, in the folder for temporary files.
//!
//! Megabytes (10^6) a second of stores and fetches with few jobs in flight, and the time to open 100,000 files. Files
//! are in the system's page cache, so this is what the store costs, not what the disk does.

#![allow(clippy::print_stdout)]

use octavo_kvdisk::{DiskConfig, DiskStore, Hash, HostMemory, Job};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

const SLOTS: usize = 32;

fn main() {
    let folder =
        std::env::args().skip(1).find(|a| !a.starts_with('-')).map_or_else(std::env::temp_dir, PathBuf::from);
    for (block_bytes, files) in [(100 << 10, 2000), (1 << 20, 400)] {
        let dir = tempfile::tempdir_in(&folder).expect("a folder");
        let mut memory = vec![0x5a_u8; block_bytes * SLOTS];
        let (store, done, _) = open(dir.path(), block_bytes, &mut memory);
        let store_rate = rate(&store, &done, block_bytes, files, |hash, slot| Job::Store { hash, slot });
        let fetch_rate = rate(&store, &done, block_bytes, files, |hash, slot| Job::Fetch { hash, slot });
        println!(
            "{:>5} KiB blocks: store {store_rate:.0} MB/s, fetch {fetch_rate:.0} MB/s",
            block_bytes >> 10
        );
    }

    let dir = tempfile::tempdir_in(&folder).expect("a folder");
    let mut memory = vec![0x5a_u8; 64 * SLOTS];
    let (store, done, _) = open(dir.path(), 64, &mut memory);
    rate(&store, &done, 64, 100_000, |hash, slot| Job::Store { hash, slot });
    drop(store);
    let start = Instant::now();
    let (_store, _, found) = open(dir.path(), 64, &mut memory);
    println!("open with {found} files: {:.2} s", start.elapsed().as_secs_f64());
}

fn open(path: &Path, block_bytes: usize, memory: &mut [u8]) -> (DiskStore, Receiver<()>, usize) {
    let (send, done) = channel();
    let send = Mutex::new(send);
    // SAFETY: outlives the store in `main`, where nobody looks at it.
    let host = unsafe { HostMemory::new(memory.as_mut_ptr(), memory.len()) };
    let report = move |done: octavo_kvdisk::Done| {
        done.outcome.expect("a good job");
        send.lock().expect("no panic").send(()).expect("a receiver");
    };
    let config =
        DiskConfig { path: path.to_owned(), capacity_bytes: u64::MAX, fingerprint: [7; 32], block_bytes };
    let (store, found) = DiskStore::open(config, host, Box::new(report)).expect("a store");
    (store, done, found.len())
}

/// Megabytes a second of `files` jobs, as many at a time as there are slots.
fn rate(
    store: &DiskStore,
    done: &Receiver<()>,
    block_bytes: usize,
    files: usize,
    job: impl Fn(Hash, u32) -> Job,
) -> f64 {
    let start = Instant::now();
    for i in 0..files + SLOTS {
        if i >= SLOTS {
            done.recv().expect("a job's end");
        }
        if i < files {
            // Spread over the folders, as hashes are.
            let mut hash = [0; 32];
            hash[..8].copy_from_slice(&(i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
            store.submit(job(hash, (i % SLOTS) as u32));
        }
    }
    (block_bytes * files) as f64 / start.elapsed().as_secs_f64() / 1e6
}
