//! What an operator reads in the log. In a binary of its own, for the subscriber is the process's.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Tier, file, hash, root};
use std::io::Write;
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// The lines since the last call.
    fn lines(&self) -> Vec<String> {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap());
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn trouble_is_told_once() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).init();

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let mut tier = Tier::open(path, 100);
    for name in 0..20 {
        tier.store(hash(name)).outcome.unwrap();
    }
    tier.close();
    assert_eq!(log.lines(), [""; 0], "no trouble, no line");

    for name in 0..10 {
        std::fs::write(file(path, &hash(name)), "short").unwrap();
    }
    let mut tier = Tier::open(path, 100);
    let lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("WARN") && lines[0].contains("10 of the files"), "{lines:?}");
    assert!(lines[0].contains("it does not begin as a file of the cache does"), "{lines:?}");

    for name in 10..15 {
        let path = file(path, &hash(name));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[500] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert!(tier.fetch(hash(name)).is_err());
    }
    let lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("checksum") && lines[0].contains("computed again"), "{lines:?}");

    std::fs::remove_dir_all(root(path)).unwrap();
    for name in 20..25 {
        assert!(tier.store(hash(name)).outcome.is_err());
    }
    assert!(tier.fetch(hash(15)).is_err());
    let lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].contains("No such file or directory") && lines[0].contains("go on without it"),
        "{lines:?}"
    );
}
