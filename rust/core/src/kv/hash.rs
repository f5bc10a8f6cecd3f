//! Keys of blocks: a hash over all tokens from the start of the sequence to the
//! end of the block, chained block by block, and the salt.
//!
//! Keys only find candidates; the tree compares tokens, so that a collision
//! costs time and never serves another sequence's memory. The mixing step is
//! the folded multiply of wyhash (Wang Yi, 2019).

use crate::ids::Token;

const K0: u64 = 0x9e37_79b9_7f4a_7c15;
const K1: u64 = 0xd1b5_4a32_d192_ed03;
const K2: u64 = 0x8bb8_4b93_962e_acc9;

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
}

/// The key before the first block.
pub fn root(salt: u64) -> u64 {
    fold(salt ^ K0, K1)
}

/// The key of a block of `tokens` whose parent has the key `parent`.
pub fn chain(parent: u64, tokens: &[Token]) -> u64 {
    let pair = |a: Token, b: Token| u64::from(a) | u64::from(b) << 32;
    let (quads, rest) = tokens.as_chunks::<4>();
    let mut own = K0;
    for quad in quads {
        own = own.rotate_left(23) ^ fold(pair(quad[0], quad[1]) ^ K1, pair(quad[2], quad[3]) ^ K2);
    }
    for &token in rest {
        own = own.rotate_left(23) ^ fold(u64::from(token) ^ K1, K2);
    }
    fold(parent ^ K2, own ^ K1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_depend_on_order_parent_and_salt() {
        let a = chain(root(0), &[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_ne!(a, chain(root(1), &[1, 2, 3, 4, 5, 6, 7, 8]));
        assert_ne!(a, chain(a, &[1, 2, 3, 4, 5, 6, 7, 8]));
        assert_ne!(a, chain(root(0), &[5, 6, 7, 8, 1, 2, 3, 4]));
        assert_ne!(chain(root(0), &[1, 2]), chain(root(0), &[2, 1]));
    }
}
