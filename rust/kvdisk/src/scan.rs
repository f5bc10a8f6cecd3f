//! What is in the folder at start.

use crate::Hash;
use crate::folder::{self, Entry, Folder, LOCK};
use crate::header::Fault;
use rustix::fs::Dir;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// Most of the time goes in waiting for the disk.
const THREADS: usize = 8;
/// Files are handed over in portions of this many.
const PORTION: usize = 1024;

/// A file that is good as far as its header tells.
type Found = (SystemTime, Hash);

/// What is not used and stays where it is.
#[derive(Debug, Default)]
struct Ignored {
    count: usize,
    example: Option<(PathBuf, String)>,
}

impl Ignored {
    fn add(&mut self, path: PathBuf, reason: impl Into<String>) {
        self.count += 1;
        self.example.get_or_insert_with(|| (path, reason.into()));
    }
}

/// Finds at most `keep` blocks, the least recently used first, and deletes the older ones, those that are damaged and
/// what was left unfinished. Memory is in proportion to `keep`, time to the number of names in the folder.
pub(crate) fn scan(folder: &Folder, keep: usize) -> Vec<Hash> {
    let found = Mutex::new(Vec::new());
    let ignored = Mutex::new(Ignored::default());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Ok(first) = u8::try_from(next.fetch_add(1, Ordering::Relaxed)) {
                    scan_sub(&Scan { folder, first, keep, found: &found, ignored: &ignored });
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut ignored = ignored.into_inner().unwrap_or_else(PoisonError::into_inner);
    scan_root(folder, &mut ignored);
    remove_all(folder, trim(&mut found, keep));
    found.sort_unstable();
    if let Some((path, reason)) = ignored.example {
        tracing::warn!(
            "KV cache on disk: {} of the files in {} are not used; one of them is {}: {reason}",
            ignored.count,
            folder.path().display(),
            path.display()
        );
    }
    found.into_iter().map(|(_, hash)| hash).collect()
}

struct Scan<'a> {
    folder: &'a Folder,
    first: u8,
    keep: usize,
    found: &'a Mutex<Vec<Found>>,
    ignored: &'a Mutex<Ignored>,
}

fn scan_sub(scan: &Scan) {
    let path = scan.folder.path().join(folder::hex(&[scan.first]));
    let ignore = |path: PathBuf, reason: String| {
        scan.ignored.lock().unwrap_or_else(PoisonError::into_inner).add(path, reason);
    };
    let sub = match scan.folder.sub(scan.first) {
        Ok(sub) => sub,
        Err(e) => return ignore(path, format!("not a folder that can be read ({e})")),
    };
    let mut portion = Vec::with_capacity(PORTION);
    let names = names(&sub, |name| {
        let (fault, damaged) = match name.map(|name| (name, folder::entry(scan.first, name))) {
            Some((name, Entry::Block(hash))) => match look(scan.folder, &sub, name, &hash) {
                Ok(Ok(time)) => {
                    portion.push((time, hash));
                    if portion.len() == PORTION {
                        hand_over(scan, &mut portion);
                    }
                    return;
                }
                Ok(Err(Fault::Foreign(reason))) => (reason.to_owned(), false),
                Ok(Err(Fault::Damaged(reason))) => (format!("{reason} (deleted)"), true),
                Err(e) => (format!("it cannot be read ({e})"), false),
            },
            Some((name, Entry::Unfinished)) => match folder::unlink(&sub, name) {
                Ok(()) => return,
                Err(e) => (format!("it cannot be deleted ({e})"), false),
            },
            _ => ("the name is not one of the cache's".to_owned(), false),
        };
        if let Some(name) = name.filter(|_| damaged) {
            let _ = folder::unlink(&sub, name);
        }
        ignore(path.join(name.unwrap_or("?")), fault);
    });
    hand_over(scan, &mut portion);
    if let Err(e) = names {
        ignore(path, format!("the folder cannot be read to its end ({e})"));
    }
}

/// Checks a file as far as its header tells; gives the time of its last use.
fn look(folder: &Folder, sub: &OwnedFd, name: &str, hash: &Hash) -> io::Result<Result<SystemTime, Fault>> {
    let mut file = folder::open_file(sub, name)?;
    match folder.check_header(hash, &mut file)? {
        Ok(_) => Ok(Ok(file.metadata()?.modified()?)),
        Err(fault) => Ok(Err(fault)),
    }
}

fn hand_over(scan: &Scan, portion: &mut Vec<Found>) {
    let old = {
        let mut found = scan.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.append(portion);
        // Now and then, so that each file is moved a bounded number of times.
        if found.len() >= scan.keep.saturating_mul(2).saturating_add(PORTION) {
            trim(&mut found, scan.keep)
        } else {
            Vec::new()
        }
    };
    remove_all(scan.folder, old);
}

/// Takes out all but the `keep` that were used last.
fn trim(found: &mut Vec<Found>, keep: usize) -> Vec<Found> {
    let Some(surplus) = found.len().checked_sub(keep).filter(|&surplus| surplus > 0) else {
        return Vec::new();
    };
    if keep > 0 {
        found.select_nth_unstable(surplus);
    }
    found.drain(..surplus).collect()
}

fn remove_all(folder: &Folder, old: Vec<Found>) {
    for (_, hash) in old {
        if let Err(error) = folder.remove(&hash) {
            tracing::warn!("KV cache on disk: {error}; it is over its capacity");
            return;
        }
    }
}

/// Notes what is in the folder itself and is none of the cache's. Its own are `lock` and 256 subfolders.
fn scan_root(folder: &Folder, ignored: &mut Ignored) {
    let result = names(folder.root(), |name| {
        let own =
            name.is_some_and(|name| name == LOCK || (0..=u8::MAX).any(|first| folder::hex(&[first]) == name));
        if !own {
            ignored.add(folder.path().join(name.unwrap_or("?")), "the name is not one of the cache's");
        }
    });
    if let Err(e) = result {
        ignored.add(folder.path().to_owned(), format!("the folder cannot be read to its end ({e})"));
    }
}

/// Calls `each` with every name in a folder; none for one that is not UTF-8.
fn names(folder: &OwnedFd, mut each: impl FnMut(Option<&str>)) -> io::Result<()> {
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_str().ok();
        if !matches!(name, Some("." | "..")) {
            each(name);
        }
    }
    Ok(())
}
