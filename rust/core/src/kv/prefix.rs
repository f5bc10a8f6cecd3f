//! What the prefix cache has for a sequence, and whether the rest fits.

use super::group::Group;
use super::lease::Lease;
use super::manager::KvManager;
use crate::ids::Token;

/// What the prefix cache can give a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixMatch {
    /// Leading blocks in the cache that this step may read.
    pub blocks: usize,
    /// Those of them that nobody holds: leasing makes so many less available.
    pub unleased: usize,
    /// The next block is computed in this very step.
    pub continues: bool,
}

impl KvManager {
    /// Looks up the start of `tokens` under the salt of `lease`, for `step` to
    /// read. At least one token is left to compute.
    pub fn match_prefix(&mut self, lease: &Lease, tokens: &[Token], step: u64) -> PrefixMatch {
        self.matched.clear();
        let most = blocks_to_read(tokens, self.block_size).len();
        let continues =
            self.caching && self.tree.find_prefix(lease.salt, tokens, most, step, &mut self.matched);
        if !self.groups.is_empty() {
            self.match_groups(step);
        }
        // Leases end from the tail, so the blocks without one are the last.
        let unleased = self.matched.iter().rev().take_while(|&&b| self.pool.refs(b) == 0).count();
        PrefixMatch { blocks: self.matched.len(), unleased, continues }
    }

    /// A match of nothing, for a sequence that may not read the cache.
    pub fn match_nothing(&mut self) -> PrefixMatch {
        self.matched.clear();
        self.groups.iter_mut().for_each(|group| group.end_match(&[]));
        PrefixMatch { blocks: 0, unleased: 0, continues: false }
    }

    /// Cuts the match to the longest that each group has what its next token reads.
    fn match_groups(&mut self, step: u64) {
        let mut longest = 0;
        self.groups.iter_mut().for_each(Group::begin_match);
        for (at, &node) in self.matched.iter().enumerate() {
            let mut may_end = true;
            for group in &mut self.groups {
                // Asked of all, for each keeps count.
                may_end &= group.may_end_with(node, at, step);
            }
            if may_end {
                longest = at + 1;
            }
        }
        self.matched.truncate(longest);
        self.groups.iter_mut().for_each(|group| group.end_match(&self.matched));
    }

    /// True if there are blocks for a sequence of `blocks` blocks of which `found`
    /// are in the cache; with `beside_others` a reserve is left.
    pub fn admits(&self, blocks: usize, found: PrefixMatch, beside_others: bool) -> bool {
        let reserve = if beside_others { self.config.reserve } else { 0 };
        blocks - found.blocks + reserve <= self.available() - found.unleased
            && self.groups.iter().all(|group| group.admits(blocks, found.blocks, beside_others))
    }

    /// True if there could be blocks for a sequence of `blocks` blocks were `victims`
    /// given up; they may share blocks, so it is not certain.
    pub fn could_admit<'a>(
        &self,
        blocks: usize,
        victims: &(impl Iterator<Item = &'a Lease> + Clone),
        beside_others: bool,
    ) -> bool {
        let reserve = if beside_others { self.config.reserve } else { 0 };
        let held = victims.clone().map(Lease::len).sum::<usize>();
        blocks + reserve <= self.available() + held
            && self.groups.iter().enumerate().all(|(at, group)| {
                let held = victims.clone().map(|lease| lease.groups[at].len()).sum();
                group.could_admit(blocks, held, beside_others)
            })
    }

    /// Leases the blocks of the last match to `lease`, which must be empty.
    pub fn lease_match(&mut self, lease: &mut Lease) {
        debug_assert!(lease.is_empty());
        for &block in &self.matched {
            if self.pool.retain(block) {
                self.lru.remove(block, self.pins.contains(block));
            }
        }
        for (group, held) in self.groups.iter_mut().zip(&mut lease.groups) {
            group.lease_match(held, &self.matched, &self.pins);
        }
        lease.blocks.append(&mut self.matched);
        lease.cached = lease.blocks.len();
        lease.sealed = false;
    }
}

/// The blocks of `tokens` that need not be computed if they are found: all that
/// are full, but one token is left to compute.
pub(super) fn blocks_to_read(tokens: &[Token], block_size: usize) -> std::slice::ChunksExact<'_, Token> {
    tokens[..tokens.len().saturating_sub(1)].chunks_exact(block_size)
}
