//! Names of blocks that hold across processes, machines and restarts.
//!
//! A block's identity is BLAKE3 over its parent's identity and its own tokens,
//! so it stands for the salt and every token up to the block's end. The tree's
//! own keys are faster and weaker; they are checked against the tokens, which
//! whoever sees only an identity cannot do.

use std::fmt;

use crate::ids::Token;

/// Before the salt. Another way to compute identities needs another prefix.
const DOMAIN: &[u8; 16] = b"octavo kv block1";

/// The identity of a block, or with [`root`](BlockHash::root) of what is before
/// the first one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockHash(pub [u8; 32]);

impl BlockHash {
    /// What the first blocks under `salt` have as their parent.
    pub fn root(salt: u64) -> Self {
        Self::of(DOMAIN, |hasher| {
            hasher.update(&salt.to_le_bytes());
        })
    }

    /// The identity of a block of `tokens` whose parent this is.
    #[must_use]
    pub fn child(&self, tokens: &[Token]) -> Self {
        Self::of(&self.0, |hasher| {
            for &token in tokens {
                hasher.update(&token.to_le_bytes());
            }
        })
    }

    fn of(first: &[u8], rest: impl FnOnce(&mut blake3::Hasher)) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(first);
        rest(&mut hasher);
        Self(*hasher.finalize().as_bytes())
    }
}

impl fmt::Debug for BlockHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files on disk and routers elsewhere hold these: they may never change.
    #[test]
    fn identities_are_known_numbers() {
        let root = BlockHash::root(7);
        let block = root.child(&[1, 2, 3, 0xffff_ffff]);
        assert_eq!(format!("{root:?}"), "f204fdb29df4aaf7c6f5fc6c4bac074e5d1ace217d73630c86999b439295087d");
        assert_eq!(format!("{block:?}"), "a10cf4e16de90cd2f49477b525bf6133e8dc3b77d77858f9fe7c00f23feda273");
    }

    #[test]
    fn identities_depend_on_salt_parent_and_order() {
        let root = BlockHash::root(0);
        let block = root.child(&[1, 2]);
        assert_ne!(root, BlockHash::root(1));
        assert_ne!(block, BlockHash::root(1).child(&[1, 2]));
        assert_ne!(block, root.child(&[2, 1]));
        assert_ne!(block.child(&[1, 2]), block);
    }
}
