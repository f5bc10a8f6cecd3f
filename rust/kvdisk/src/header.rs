//! What stands before the payload in a file. Numbers are little-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | magic `OCTAVOKV` |
//! | 8..12 | version of this format |
//! | 12..16 | zero |
//! | 16..48 | fingerprint of model, weights and layout |
//! | 48..80 | hash: the content's name, which is the file's name too |
//! | 80..88 | bytes of payload, which follow the header and end the file |
//! | 88..96 | XXH3-64 of the payload |
//! | 96..104 | XXH3-64 of bytes 0..96 |

use crate::Hash;
use twox_hash::XxHash3_64;

/// Bytes before the payload.
pub(crate) const LEN: usize = 104;

const MAGIC: [u8; 8] = *b"OCTAVOKV";
const VERSION: u32 = 1;

/// Why a file is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Not ours: it stays where it is.
    Foreign(&'static str),
    /// Ours once: it is worth nothing and goes.
    Damaged(&'static str),
}

/// What all files of a folder have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    pub(crate) fingerprint: [u8; 32],
    pub(crate) block_bytes: usize,
}

impl Format {
    pub(crate) fn file_bytes(&self) -> u64 {
        (LEN + self.block_bytes) as u64
    }

    /// The header of `payload`, named `hash`.
    pub(crate) fn header(&self, hash: &Hash, payload: &[u8]) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..48].copy_from_slice(&self.fingerprint);
        bytes[48..80].copy_from_slice(hash);
        bytes[80..88].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        bytes[88..96].copy_from_slice(&XxHash3_64::oneshot(payload).to_le_bytes());
        let sum = XxHash3_64::oneshot(&bytes[..96]);
        bytes[96..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Checks a header (shorter if the file is) and the file's size; returns the payload's checksum.
    pub(crate) fn check(&self, hash: &Hash, header: &[u8], file_bytes: u64) -> Result<u64, Fault> {
        let magic = header.len().min(MAGIC.len());
        if header[..magic] != MAGIC[..magic] {
            return Err(Fault::Foreign("it does not begin as a file of the cache does"));
        }
        let Some(header) = header.first_chunk::<LEN>() else {
            return Err(Fault::Damaged("it is cut off in the header"));
        };
        // A later version may sum another part, so this comes first.
        if header[8..12] != VERSION.to_le_bytes() {
            return Err(Fault::Foreign("it is of another format version"));
        }
        if number(header, 96) != XxHash3_64::oneshot(&header[..96]) {
            return Err(Fault::Damaged("the header's checksum is wrong"));
        }
        if header[16..48] != self.fingerprint {
            return Err(Fault::Foreign("it is of another model or layout"));
        }
        if header[48..80] != *hash {
            return Err(Fault::Foreign("it has another block's name"));
        }
        if number(header, 80) != self.block_bytes as u64 {
            return Err(Fault::Foreign("its block is of another size"));
        }
        if file_bytes != self.file_bytes() {
            return Err(Fault::Damaged("it is shorter or longer than it says"));
        }
        Ok(number(header, 88))
    }
}

/// Checks a payload against the checksum that the header gave.
pub(crate) fn check_payload(payload: &[u8], sum: u64) -> Result<(), Fault> {
    if XxHash3_64::oneshot(payload) == sum { Ok(()) } else { Err(Fault::Damaged("the checksum is wrong")) }
}

fn number(header: &[u8; LEN], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&header[at..at + 8]);
    u64::from_le_bytes(bytes)
}
