//! The laws of KV memory, for property tests, simulations and debug builds.

use super::manager::{KvManager, Lease, Parts};
use super::tiers::Tiers;
use crate::error::{Error, Result};

/// Checks `kv` against all leases that are out: free + cached + leased = total,
/// no block in two states, counts equal leases, the tree is closed under
/// prefixes, what is evicted first is a leaf,
/// pins are nested and bounded, and host slots are conserved.
///
/// # Errors
/// Internal, naming the law and the block. Costs O(blocks).
pub fn check<'a>(kv: &KvManager, leases: impl IntoIterator<Item = &'a Lease>) -> Result<()> {
    let Parts { pool, tree, lru, pins, settling, tiers } = kv.parts();
    let mut leased = vec![0u32; pool.len()];
    let mut last_holder = vec![usize::MAX; pool.len()];
    for (holder, lease) in leases.into_iter().enumerate() {
        for &block in lease.blocks() {
            leased[block as usize] += 1;
            let last = std::mem::replace(&mut last_holder[block as usize], holder);
            law(last != holder, "a lease holds no block twice", block)?;
        }
    }
    for &block in settling {
        leased[block as usize] += 1;
    }
    let mut states = vec![0u32; pool.len()];
    for &block in pool.free() {
        states[block as usize] += 1;
        law(!tree.contains(block), "a free block is not in the tree", block)?;
    }
    for (block, pinned) in lru.iter() {
        states[block as usize] += 1;
        law(pinned == pins.contains(block), "pinned blocks have an order of their own", block)?;
        law(tree.contains(block), "a cached block is in the tree", block)?;
    }
    for block in 0..pool.len() as u32 {
        let refs = pool.refs(block);
        law(refs == leased[block as usize], "references are leases", block)?;
        let others = states[block as usize];
        law(others + u32::from(refs > 0) == 1, "a block is free, cached or leased", block)?;
    }
    law(pool.free().len() + kv.cached() + kv.leased() == kv.total(), "blocks are conserved", 0)?;
    for block in tree.members() {
        if let Some(identity) = tree.identity(block) {
            law(identity == tree.identity_of(block), "an identity follows from its parent's", block)?;
        }
        law(tree.finds_itself(block), "the tree finds its members", block)?;
        if let Some(parent) = tree.parent(block) {
            law(tree.contains(parent), "a parent is in the tree", block)?;
            law(pool.refs(parent) >= pool.refs(block).min(1), "who holds a block holds its parent", block)?;
        }
    }
    let broken = pins.broken_law(tree).or_else(|| tiers.and_then(Tiers::broken_law));
    if let Some((name, block)) = broken {
        law(false, name, block)?;
    }
    let mut evicted = vec![false; pool.len()];
    for (block, _) in lru.iter() {
        evicted[block as usize] = true;
        if let Some(parent) = tree.parent(block) {
            law(!evicted[parent as usize], "leaves are evicted before their parents", block)?;
        }
    }
    Ok(())
}

fn law(holds: bool, name: &str, block: u32) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::internal(format!("KV law broken at block {block}: {name}"))) }
}
