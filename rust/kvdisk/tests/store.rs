//! What is stored comes back, in this run and the next, and no more is kept than was allowed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{FILE, SLOTS, Tier, config, content, file, hash, root};
use octavo_kvdisk::{Error, Job};
use std::os::unix::fs::PermissionsExt;

#[test]
fn blocks_survive_a_restart_in_order_of_use() {
    let dir = tempfile::tempdir().unwrap();
    let mut tier = Tier::open(dir.path(), 10);
    assert!(tier.found.is_empty());
    for name in 0..4 {
        tier.store(hash(name)).outcome.unwrap();
    }
    assert_eq!(tier.fetch(hash(1)).unwrap(), content(&hash(1)));
    assert_eq!(tier.bytes_used(), 4 * FILE);
    tier.close();

    let mut tier = Tier::open(dir.path(), 10);
    assert_eq!(tier.found, [hash(0), hash(2), hash(3), hash(1)]);
    assert_eq!(tier.bytes_used(), 4 * FILE);
    for name in 0..4 {
        assert_eq!(tier.fetch(hash(name)).unwrap(), content(&hash(name)));
    }
    assert!(matches!(tier.fetch(hash(9)), Err(Error::Missing)));
}

#[test]
fn the_least_recently_used_make_room() {
    let dir = tempfile::tempdir().unwrap();
    let mut tier = Tier::open(dir.path(), 3);
    for name in 0..3 {
        assert!(tier.store(hash(name)).evicted.is_empty());
    }
    tier.fetch(hash(0)).unwrap();
    assert_eq!(tier.store(hash(3)).evicted, [hash(1)]);
    assert!(tier.store(hash(3)).evicted.is_empty(), "what is there needs no room");
    assert_eq!(tier.bytes_used(), 3 * FILE);
    assert!(!file(dir.path(), &hash(1)).exists());
    assert!(matches!(tier.fetch(hash(1)), Err(Error::Missing)));
    assert_eq!(tier.fetch(hash(0)).unwrap(), content(&hash(0)));
    tier.close();

    let mut tier = Tier::open(dir.path(), 2);
    assert_eq!(tier.found, [hash(3), hash(0)], "a lower limit keeps the last used");
    assert!(!file(dir.path(), &hash(2)).exists());
    assert_eq!(tier.store(hash(4)).evicted, [hash(3)]);
}

#[test]
fn deletions_hold_in_this_run_and_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let mut tier = Tier::open(dir.path(), 10);
    for name in 0..3 {
        tier.store(hash(name)).outcome.unwrap();
    }
    tier.run(Job::Delete { hash: hash(1) }).outcome.unwrap();
    tier.run(Job::Delete { hash: hash(7) }).outcome.unwrap();
    assert!(matches!(tier.fetch(hash(1)), Err(Error::Missing)));
    tier.close();

    let mut tier = Tier::open(dir.path(), 10);
    assert_eq!(tier.found, [hash(0), hash(2)]);
    tier.slot(0).copy_from_slice(&content(&hash(3)));
    tier.submit(Job::Clear);
    tier.submit(Job::Store { hash: hash(3), slot: 0 });
    assert_eq!(tier.wait().job, Job::Clear);
    tier.wait().outcome.unwrap();
    assert!(matches!(tier.fetch(hash(0)), Err(Error::Missing)));
    assert_eq!(tier.fetch(hash(3)).unwrap(), content(&hash(3)));
    assert_eq!(tier.bytes_used(), FILE);
    tier.close();
    assert_eq!(Tier::open(dir.path(), 10).found, [hash(3)]);
}

#[test]
fn closing_finishes_the_stores_that_are_queued() {
    let dir = tempfile::tempdir().unwrap();
    let mut tier = Tier::open(dir.path(), 300);
    for slot in 0..SLOTS as u32 {
        let bytes = content(&hash(slot as u8));
        tier.slot(slot).copy_from_slice(&bytes);
    }
    for name in 0..200 {
        tier.submit(Job::Store { hash: [name; 32], slot: u32::from(name) % SLOTS as u32 });
    }
    let dones = tier.close();
    assert_eq!(dones.len(), 200);
    assert!(dones.iter().all(|done| done.outcome.is_ok()));
    let mut tier = Tier::open(dir.path(), 300);
    assert_eq!(tier.found.len(), 200);
    assert_eq!(tier.fetch([199; 32]).unwrap(), content(&hash(199 % SLOTS as u8)));
}

#[test]
fn fetches_and_stores_run_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let mut tier = Tier::open(dir.path(), 300);
    for name in 0..4 {
        tier.store(hash(name)).outcome.unwrap();
        let bytes = content(&hash(name));
        tier.slot(u32::from(name)).copy_from_slice(&bytes);
    }
    for round in 0..100u8 {
        let other = |slot: u8| [round.wrapping_mul(2) + slot % 2; 32];
        for slot in 0..4 {
            tier.submit(Job::Store { hash: other(slot), slot: u32::from(slot) });
            tier.submit(Job::Fetch { hash: hash(slot), slot: u32::from(slot) + 4 });
        }
        for _ in 0..8 {
            tier.wait().outcome.unwrap();
        }
        for slot in 0..4 {
            assert_eq!(tier.slot(u32::from(slot) + 4), content(&hash(slot)));
        }
        // Of two stores of one block the later one holds.
        assert_eq!(tier.fetch(other(1)).unwrap(), content(&hash(3)));
        let bytes = content(&hash(1));
        tier.slot(1).copy_from_slice(&bytes);
    }
}

#[test]
fn a_slot_that_is_not_there_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut tier = Tier::open(dir.path(), 10);
    tier.store(hash(0)).outcome.unwrap();
    for slot in [SLOTS as u32, u32::MAX] {
        for job in [Job::Store { hash: hash(1), slot }, Job::Fetch { hash: hash(0), slot }] {
            let error = tier.run(job).outcome.unwrap_err();
            assert_eq!(error.to_string(), format!("the host tier has 8 slots and no slot {slot}"));
        }
    }
}

#[test]
fn nobody_else_may_read_what_users_have_said() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b");
    Tier::open(&path, 10).store(hash(0)).outcome.unwrap();
    let file = file(&path, &hash(0));
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    for folder in [&path, &root(&path), file.parent().unwrap()] {
        assert_eq!(mode(folder), 0o700, "{}", folder.display());
    }
    assert_eq!(mode(&file), 0o600);
    assert_eq!(mode(&root(&path).join("lock")), 0o600);

    std::fs::set_permissions(root(&path), PermissionsExt::from_mode(0o755)).unwrap();
    Tier::open(&path, 10);
    assert_eq!(mode(&root(&path)), 0o700, "a folder that was opened to others is closed again");
}

#[test]
fn a_second_server_is_told_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let first = Tier::open(dir.path(), 10);
    let message = Tier::try_open(&config(dir.path(), 10)).err().unwrap().to_string();
    let pid = std::process::id();
    assert!(message.contains(&format!("process {pid}")) && message.contains("--kv-disk-path"), "{message}");
    let mut other = config(dir.path(), 10);
    other.fingerprint = [1; 32];
    Tier::try_open(&other).expect("another model has a folder of its own");
    first.close();
    std::fs::write(root(dir.path()).join("lock"), "4194304").unwrap();
    Tier::try_open(&config(dir.path(), 10)).expect("a file that nobody holds is no lock");
}

#[test]
fn a_folder_that_cannot_be_used_is_an_error_that_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, "").unwrap();
    for path in [&path, &path.join("below"), std::path::Path::new("/proc/kv")] {
        let message = Tier::try_open(&config(path, 10)).err().unwrap().to_string();
        assert!(message.contains(path.to_str().unwrap()) && message.contains("--kv-disk-path"), "{message}");
    }
    let message = Tier::try_open(&config(dir.path(), 0)).err().unwrap().to_string();
    assert!(message.contains("1104 bytes") && message.contains("--kv-disk-size"), "{message}");
}
