//! Nothing in the folder is believed, and nothing outside it is touched.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{BLOCK, FILE, Tier, config, content, file, hash, root};
use octavo_kvdisk::{Error, Hash, Job};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// A folder with blocks 0..n in it.
fn filled(path: &Path, n: u8) {
    let mut tier = Tier::open(path, 1000);
    for name in 0..n {
        tier.store(hash(name)).outcome.unwrap();
    }
}

#[test]
fn a_file_that_is_not_what_was_written_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    filled(path, 10);
    let bytes = fs::read(file(path, &hash(0))).unwrap();
    let change = |name: u8, f: &dyn Fn(&mut Vec<u8>)| {
        let path = file(path, &hash(name));
        let mut bytes = fs::read(&path).unwrap();
        f(&mut bytes);
        fs::write(&path, bytes).unwrap();
    };
    change(0, &|b| b.truncate(500));
    change(1, &|b| b.clear());
    change(2, &|b| b.push(0));
    change(3, &|b| b[90] ^= 1);
    change(4, &|b| b[..8].copy_from_slice(b"whatever"));
    change(5, &|b| b[8] = 2);
    change(6, &|b| *b = bytes.clone());
    let mut other = config(path, 10);
    other.fingerprint = [1; 32];
    Tier::try_open(&other).unwrap().store(hash(7)).outcome.unwrap();
    fs::copy(
        path.join("01".repeat(32)).join(file(path, &hash(7)).strip_prefix(root(path)).unwrap()),
        file(path, &hash(7)),
    )
    .unwrap();

    let mut tier = Tier::open(path, 1000);
    assert_eq!(tier.found, [hash(8), hash(9)]);
    for name in 0..8 {
        assert!(matches!(tier.fetch(hash(name)), Err(Error::Missing)));
        let kept = (4..8).contains(&name);
        assert_eq!(file(path, &hash(name)).exists(), kept, "{name}: damaged goes, foreign stays");
    }
    assert_eq!(tier.fetch(hash(8)).unwrap(), content(&hash(8)));
    tier.store(hash(5)).outcome.unwrap();
    assert_eq!(tier.fetch(hash(5)).unwrap(), content(&hash(5)));
}

#[test]
fn damage_behind_our_back_is_found_at_the_fetch() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let mut tier = Tier::open(path, 10);
    for name in 0..4 {
        tier.store(hash(name)).outcome.unwrap();
    }
    let mut bytes = fs::read(file(path, &hash(0))).unwrap();
    *bytes.last_mut().unwrap() ^= 0x80;
    fs::write(file(path, &hash(0)), bytes).unwrap();
    fs::File::options().write(true).open(file(path, &hash(1))).unwrap().set_len(600).unwrap();
    fs::remove_file(file(path, &hash(2))).unwrap();

    let message = tier.fetch(hash(0)).unwrap_err().to_string();
    assert!(message.contains("damaged: the checksum is wrong"), "{message}");
    assert!(matches!(tier.fetch(hash(1)), Err(Error::Damaged { .. })));
    assert!(matches!(tier.fetch(hash(2)), Err(Error::Missing)));
    assert_eq!(tier.fetch(hash(3)).unwrap(), content(&hash(3)));
    for name in 0..3 {
        assert!(!file(path, &hash(name)).exists());
        assert!(matches!(tier.fetch(hash(name)), Err(Error::Missing)));
    }
    assert_eq!(tier.bytes_used(), FILE);
    tier.store(hash(0)).outcome.unwrap();
    assert_eq!(tier.fetch(hash(0)).unwrap(), content(&hash(0)));
}

#[test]
fn links_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kv");
    filled(&path, 4);
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    // A good block, a whole subfolder and a file that is being written, each behind a link.
    let (block, folder, writing) = (file(&path, &hash(0)), file(&path, &hash(1)), file(&path, &hash(5)));
    fs::rename(&block, outside.join("block")).unwrap();
    symlink(outside.join("block"), &block).unwrap();
    fs::rename(folder.parent().unwrap(), outside.join("folder")).unwrap();
    symlink(outside.join("folder"), folder.parent().unwrap()).unwrap();
    fs::write(outside.join("precious"), "precious").unwrap();
    symlink(outside.join("precious"), writing.with_extension("tmp")).unwrap();

    let mut tier = Tier::open(&path, 10);
    assert_eq!(tier.found, [hash(2), hash(3)]);
    symlink(outside.join("precious"), writing.with_extension("tmp")).unwrap();
    assert!(matches!(tier.store(hash(5)).outcome, Err(Error::Io { .. })));
    assert!(matches!(tier.store(hash(1)).outcome, Err(Error::Io { .. })));
    assert!(matches!(tier.run(Job::Delete { hash: hash(1) }).outcome, Err(Error::Io { .. })));
    // A link in the place of a block that is in use.
    fs::remove_file(file(&path, &hash(2))).unwrap();
    symlink(outside.join("block"), file(&path, &hash(2))).unwrap();
    assert!(tier.fetch(hash(2)).is_err());
    tier.run(Job::Clear).outcome.unwrap();

    assert_eq!(fs::read_to_string(outside.join("precious")).unwrap(), "precious");
    assert_eq!(fs::read(outside.join("block")).unwrap().len(), FILE as usize);
    assert_eq!(fs::read_dir(outside.join("folder")).unwrap().count(), 1);

    let linked = dir.path().join("linked");
    fs::create_dir(&linked).unwrap();
    symlink(root(&path), root(&linked)).unwrap();
    assert!(Tier::try_open(&config(&linked, 10)).is_err(), "the subfolder of the model is no link either");
}

#[test]
fn what_is_left_unfinished_goes_and_what_is_odd_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    filled(path, 1);
    let unfinished = file(path, &hash(3)).with_extension("tmp");
    fs::write(&unfinished, [0; 50]).unwrap();
    let odd = [root(path).join("notes.txt"), root(path).join("00/notes.txt"), path.join("notes.txt")];
    for odd in &odd {
        fs::write(odd, "x").unwrap();
    }
    fs::create_dir(file(path, &hash(4))).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        file(path, &hash(5)),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();

    let mut tier = Tier::open(path, 10);
    assert_eq!(tier.found, [hash(0)]);
    assert!(!unfinished.exists());
    assert!(odd.iter().all(|odd| odd.exists()));
    tier.run(Job::Clear).outcome.unwrap();
    assert!(odd.iter().all(|odd| odd.exists()));
    assert!(tier.store(hash(4)).outcome.is_err(), "a folder in the place of a file");
    tier.store(hash(5)).outcome.unwrap();
    assert_eq!(tier.fetch(hash(5)).unwrap(), content(&hash(5)));
}

#[test]
fn no_change_of_bytes_gets_through() {
    const FILES: u64 = 250;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        // xorshift64
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    let mut refused = 0;
    for round in 0..4 {
        let mut tier = Tier::open(path, FILES);
        let hashes: Vec<Hash> = (0..FILES).map(|_| std::array::from_fn(|_| random(256) as u8)).collect();
        for hash in &hashes {
            tier.store(*hash).outcome.unwrap();
        }
        let damage = || {
            for hash in &hashes {
                let path = file(path, hash);
                let mut bytes = fs::read(&path).unwrap();
                match random(6) {
                    0 => bytes.truncate(random(bytes.len())),
                    1 => bytes.extend((0..=random(200)).map(|_| 7)),
                    2 => bytes[random(104)..].fill(0),
                    3 => bytes.rotate_left(1 + random(BLOCK)),
                    4 => (0..=random(20)).for_each(|_| bytes[random(104)] = random(256) as u8),
                    _ => bytes[random(FILE as usize)] ^= 1 << random(8),
                }
                fs::write(path, bytes).unwrap();
            }
        };
        // Damaged while the store runs, or between two runs.
        if round % 2 == 0 {
            let mut damage = damage;
            damage();
        } else {
            tier.close();
            let mut damage = damage;
            damage();
            tier = Tier::open(path, FILES);
        }
        for hash in &hashes {
            match tier.fetch(*hash) {
                // A change may have written the byte that was there.
                Ok(bytes) => assert_eq!(bytes, content(hash)),
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 4 * FILES - 50, "{refused} were refused");
}
