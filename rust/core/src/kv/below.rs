//! The manager and the tiers below the device.

use super::identity::BlockHash;
use super::lease::Lease;
use super::manager::KvManager;
use super::prefix::blocks_to_read;
use super::tiers::{Copies, Tiers};
use crate::ids::Token;

impl KvManager {
    /// Looks up how many blocks of `tokens` the host has after those of `lease`,
    /// for [`Self::load`]; at most `most`.
    pub fn find_below(&mut self, lease: &Lease, tokens: &[Token], most: usize) -> usize {
        let parent = self.identity_before(lease.salt, lease.blocks.last().copied());
        let rest = blocks_to_read(tokens, self.block_size).skip(lease.len());
        self.tiers.as_mut().map_or(0, |tiers| tiers.find(parent(), rest, most))
    }

    /// Has `step`, which is being planned, load what the last [`Self::find_below`] found
    /// into the blocks of `lease` after its cached ones; returns how many of them were
    /// fetched from disk for it.
    pub fn load(&mut self, lease: &mut Lease, tokens: &[Token], found: usize, step: u64) -> usize {
        let Some(tiers) = &mut self.tiers else { return 0 };
        let first = lease.cached;
        let fetched = tiers.load(&lease.blocks[first..first + found]);
        let tokens = &tokens[first * self.block_size..(first + found) * self.block_size];
        let mut parent = first.checked_sub(1).map(|before| lease.blocks[before]);
        self.tree.prepare(lease.salt, parent, tokens);
        for (at, content) in tokens.chunks_exact(self.block_size).enumerate() {
            let block = lease.blocks[first + at];
            // Loads come before rows: this very step may read the block.
            let twin = self.tree.insert(lease.salt, parent, content, (at, block), 0);
            debug_assert_eq!(twin, None, "the match ended before the block");
            self.events.entered(block, step);
            parent = Some(block);
        }
        lease.cached += found;
        fetched
    }

    /// Has what the tiers below the host have of `tokens` fetched to the host;
    /// returns what to wait for.
    pub fn fetch(&mut self, lease: &Lease, tokens: &[Token], step: u64) -> Vec<BlockHash> {
        if !self.tiers.as_ref().is_some_and(Tiers::has_disk) {
            return Vec::new();
        }
        let found = self.match_prefix(lease, tokens, step).blocks;
        let parent = self.identity_before(lease.salt, self.matched.last().copied());
        let rest = blocks_to_read(tokens, self.block_size).skip(found);
        self.tiers.as_mut().map_or_else(Vec::new, |tiers| tiers.fetch(parent(), rest))
    }

    /// The tiers below the device, if there are some.
    pub fn tiers(&self) -> Option<&Tiers> {
        self.tiers.as_ref()
    }

    /// The tiers below the device, if there are some.
    pub fn tiers_mut(&mut self) -> Option<&mut Tiers> {
        self.tiers.as_mut()
    }

    /// Planning of a step begins.
    pub fn begin(&mut self, step: u64) {
        if let Some(tiers) = &mut self.tiers {
            tiers.begin(step);
        }
    }

    /// Planning of a step ends: its copies go to `copies`, which is empty.
    pub fn take_copies(&mut self, copies: &mut Copies) {
        if let Some(tiers) = &mut self.tiers {
            // Blocks that are leased again may be written by this very step, after its saves.
            tiers.write_through(|block| self.tree.identity(block).filter(|_| self.pool.refs(block) == 0));
            tiers.take_copies(copies);
        }
    }

    /// The identity of `last`, or of what is before the first block.
    fn identity_before(&self, salt: u64, last: Option<u32>) -> impl FnOnce() -> BlockHash + use<> {
        let identity = last.and_then(|last| self.tree.identity(last));
        move || identity.unwrap_or_else(|| BlockHash::root(salt))
    }
}
