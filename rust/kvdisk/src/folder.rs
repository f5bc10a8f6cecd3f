//! The folder of one fingerprint: `lock`, and a file a block in 256 subfolders, `ab/abcd....` by the hash in hex.
//!
//! All is done relative to the open folder, one step of a path at a time and without following links, so that
//! nothing outside is read, written or deleted whatever somebody puts in here.

use crate::header::{self, Fault, Format};
use crate::{DiskConfig, Error, Hash, Result};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::fmt::Write as _;
use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, Read, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const PRIVATE_FOLDER: Mode = Mode::RWXU;
const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);
const OPEN_FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// After the name of a file that is being written.
const UNFINISHED: &str = ".tmp";
/// The lock file's name.
pub(crate) const LOCK: &str = "lock";

/// What a name in a subfolder means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A block.
    Block(Hash),
    /// What a process that died was writing.
    Unfinished,
    /// Nothing of ours.
    Other,
}

/// The open folder, locked for this process.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    root: OwnedFd,
    format: Format,
    /// Held as long as it is open: the system lets go of it when the process dies, however it dies.
    _lock: File,
}

impl Folder {
    /// Makes what is missing and takes the lock.
    pub(crate) fn open(config: &DiskConfig, format: Format) -> Result<Self> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&config.path);
        made.map_err(|e| Error::open("make the folder", &config.path, e))?;
        let above = rustix::fs::openat(CWD, &config.path, OPEN_FOLDER, Mode::empty())
            .map_err(|e| Error::open("open the folder", &config.path, e))?;

        let name = hex(&config.fingerprint);
        let path = config.path.join(&name);
        make_folder(&above, &name).map_err(|e| Error::open("make the folder", &path, e))?;
        let root = open_folder(&above, &name).map_err(|e| Error::open("open the folder", &path, e))?;
        own(&root, &path)?;
        let lock = lock(&root, &path)?;
        for first in 0..=u8::MAX {
            make_folder(&root, &hex(&[first])).map_err(|e| Error::open("make folders in", &path, e))?;
        }
        Ok(Self { path, root, format, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// The subfolder of hashes that begin with `first`.
    pub(crate) fn sub(&self, first: u8) -> io::Result<OwnedFd> {
        open_folder(&self.root, &hex(&[first]))
    }

    pub(crate) fn path_of(&self, hash: &Hash) -> PathBuf {
        self.path.join(hex(&hash[..1])).join(hex(hash))
    }

    /// Writes a block, over one of the same name. A reader sees the old file or the whole new one.
    pub(crate) fn write(&self, hash: &Hash, payload: &[u8]) -> Result<()> {
        let written = self.sub(hash[0]).and_then(|sub| {
            let name = hex(hash);
            let unfinished = name.clone() + UNFINISHED;
            let result = self
                .write_file(&sub, &unfinished, hash, payload)
                .and_then(|()| Ok(rustix::fs::renameat(&sub, &unfinished, &sub, &name)?));
            if result.is_err() {
                // It would go at the next start; this makes room sooner.
                let _ = rustix::fs::unlinkat(&sub, &unfinished, AtFlags::empty());
            }
            result
        });
        written.map_err(|e| self.failed("write", hash, e))
    }

    fn write_file(&self, sub: &OwnedFd, name: &str, hash: &Hash, payload: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(sub, name, flags, PRIVATE_FILE)?);
        file.write_all(&self.format.header(hash, payload))?;
        file.write_all(payload)?;
        // The order of use is read from these times at the next start; those of the system may tick slowly.
        file.set_modified(SystemTime::now())
    }

    /// Reads and verifies a block, and notes that it was used. `payload` is undefined after an error.
    pub(crate) fn read(&self, hash: &Hash, payload: &mut [u8]) -> Result<()> {
        let opened = self.sub(hash[0]).and_then(|sub| open_file(&sub, &hex(hash)));
        let mut file = opened.map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => Error::Missing,
            _ => self.failed("open", hash, e),
        })?;
        let damaged = |fault| {
            let (Fault::Foreign(reason) | Fault::Damaged(reason)) = fault;
            Error::Damaged { path: self.path_of(hash), reason }
        };
        let sum =
            self.check_header(hash, &mut file).map_err(|e| self.failed("read", hash, e))?.map_err(damaged)?;
        file.read_exact(payload).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => damaged(Fault::Damaged("it became shorter")),
            _ => self.failed("read", hash, e),
        })?;
        header::check_payload(payload, sum).map_err(damaged)?;
        // A folder that became read-only still serves what it has.
        let _ = file.set_modified(SystemTime::now());
        Ok(())
    }

    /// Reads a file's header and checks it and the size; returns the payload's checksum.
    pub(crate) fn check_header(
        &self,
        hash: &Hash,
        file: &mut File,
    ) -> io::Result<std::result::Result<u64, Fault>> {
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Ok(Err(Fault::Foreign("it is not a file")));
        }
        let mut bytes = Vec::with_capacity(header::LEN);
        Read::take(&mut *file, header::LEN as u64).read_to_end(&mut bytes)?;
        Ok(self.format.check(hash, &bytes, meta.len()))
    }

    /// Deletes a block's file, if there is one.
    pub(crate) fn remove(&self, hash: &Hash) -> Result<()> {
        let removed = self.sub(hash[0]).and_then(|sub| unlink(&sub, &hex(hash)));
        match removed {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(self.failed("delete", hash, e)),
            _ => Ok(()),
        }
    }

    fn failed(&self, action: &'static str, hash: &Hash, source: io::Error) -> Error {
        Error::Io { action, path: self.path_of(hash), source }
    }
}

/// Opens a file for reading. What is not a file is opened or refused, but never waited for.
pub(crate) fn open_file(sub: &OwnedFd, name: &str) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(sub, name, flags, Mode::empty())?))
}

pub(crate) fn unlink(sub: &OwnedFd, name: &str) -> io::Result<()> {
    Ok(rustix::fs::unlinkat(sub, name, AtFlags::empty())?)
}

/// What a name in the subfolder of `first` means.
pub(crate) fn entry(first: u8, name: &str) -> Entry {
    let (digits, unfinished) = match name.strip_suffix(UNFINISHED) {
        Some(digits) => (digits, true),
        None => (name, false),
    };
    match unhex(digits) {
        Some(hash) if hash[0] == first && unfinished => Entry::Unfinished,
        Some(hash) if hash[0] == first => Entry::Block(hash),
        _ => Entry::Other,
    }
}

/// Bytes as lower-case hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The hash that `hex` writes as `text`; other spellings are none.
fn unhex(text: &str) -> Option<Hash> {
    let digits: &[u8; 64] = text.as_bytes().try_into().ok()?;
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(hash)
}

fn digit(letter: u8) -> Option<u8> {
    match letter {
        b'0'..=b'9' => Some(letter - b'0'),
        b'a'..=b'f' => Some(letter - b'a' + 10),
        _ => None,
    }
}

fn make_folder(above: &OwnedFd, name: &str) -> io::Result<()> {
    match rustix::fs::mkdirat(above, name, PRIVATE_FOLDER) {
        Err(e) if e != rustix::io::Errno::EXIST => Err(e.into()),
        _ => Ok(()),
    }
}

fn open_folder(above: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(above, name, OPEN_FOLDER | OFlags::NOFOLLOW, Mode::empty())?)
}

/// Makes sure that nobody else can read or write in the folder.
fn own(root: &OwnedFd, path: &Path) -> Result<()> {
    let stat = rustix::fs::fstat(root).map_err(|e| Error::open("look at", path, e))?;
    let user = rustix::process::geteuid().as_raw();
    if stat.st_uid != user {
        return Err(Error::Owner { path: path.to_owned(), owner: stat.st_uid, user });
    }
    if Mode::from_raw_mode(stat.st_mode) != PRIVATE_FOLDER {
        rustix::fs::fchmod(root, PRIVATE_FOLDER).map_err(|e| Error::open("make private", path, e))?;
    }
    Ok(())
}

fn lock(root: &OwnedFd, folder: &Path) -> Result<File> {
    let path = folder.join(LOCK);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(root, LOCK, flags, PRIVATE_FILE);
    let mut file = File::from(file.map_err(|e| Error::open("write", &path, e))?);
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let _ = file.take(20).read_to_string(&mut pid);
            let known = !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit());
            return Err(Error::Locked { path, pid: if known { pid } else { "unknown".into() } });
        }
        Err(TryLockError::Error(e)) => return Err(Error::open("lock", &path, e)),
    }
    // The number is for the other's message only, so a failure to write it is none.
    let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_the_store_writes_are_its_own() {
        let hash: Hash = std::array::from_fn(|i| (i * 9 + 0xa0) as u8);
        let name = hex(&hash);
        assert_eq!(entry(hash[0], &name), Entry::Block(hash));
        assert_eq!(entry(hash[0], &format!("{name}.tmp")), Entry::Unfinished);
        for other in [
            &name.to_uppercase(),
            &name[1..],
            &format!("{name}0"),
            "",
            ".tmp",
            "lock",
            "é".repeat(32).as_str(),
        ] {
            assert_eq!(entry(hash[0], other), Entry::Other, "{other}");
        }
        assert_eq!(entry(hash[0] + 1, &name), Entry::Other);
    }
}
