//! The laws of KV memory, for property tests, simulations and debug builds.

use super::group::Group;
use super::index::NONE;
use super::lease::{Held, Lease};
use super::manager::KvManager;
use super::pins::Pins;
use super::tiers::Tiers;
use crate::error::{Error, Result};

/// Checks `kv` against all leases that are out: free + cached + leased = total,
/// no block in two states, counts equal leases, the tree is closed under
/// prefixes, what is evicted first is a leaf,
/// pins are nested and bounded, host slots are conserved, and each layer group
/// conserves its blocks and has companions of members only.
///
/// # Errors
/// Internal, naming the law and the block. Costs O(blocks).
pub fn check<'a>(kv: &KvManager, leases: impl IntoIterator<Item = &'a Lease, IntoIter: Clone>) -> Result<()> {
    let KvManager { pool, tree, lru, pins, settling, tiers, groups, .. } = kv;
    let leases = leases.into_iter();
    let mut leased = vec![0u32; pool.len()];
    let mut last_holder = vec![usize::MAX; pool.len()];
    for (holder, lease) in leases.clone().enumerate() {
        for &block in &lease.blocks {
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
    let mut broken = pins.broken_law(tree).or_else(|| tiers.as_ref().and_then(Tiers::broken_law));
    for (at, group) in groups.iter().enumerate() {
        let held = leases.clone().map(|lease| &lease.groups[at]);
        broken = broken.or_else(|| broken_group_law(group, held, |node| tree.contains(node), pins));
    }
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

/// The first of a group's laws that does not hold where sequences hold `held`,
/// and the block.
fn broken_group_law<'a>(
    group: &Group,
    held: impl Iterator<Item = &'a Held>,
    is_member: impl Fn(u32) -> bool,
    pins: &Pins,
) -> Option<(&'static str, u32)> {
    let mut leased = vec![0u32; group.pool.len()];
    held.flat_map(Held::blocks).for_each(|block| leased[block as usize] += 1);
    let mut states = vec![0u32; group.pool.len()];
    for &block in group.pool.free() {
        states[block as usize] += 1;
        if group.nodes[block as usize] != NONE {
            return Some(("a free block of a group is no companion", block));
        }
    }
    for (block, pinned) in group.lru.iter() {
        states[block as usize] += 1;
        let node = group.nodes[block as usize];
        if node == NONE || pinned != pins.contains(node) {
            return Some(("a cached block of a group is a companion, in its order", block));
        }
    }
    for block in 0..group.pool.len() as u32 {
        let refs = group.pool.refs(block);
        if refs != leased[block as usize] {
            return Some(("references of a group are leases", block));
        }
        if states[block as usize] + u32::from(refs > 0) != 1 {
            return Some(("a block of a group is free, cached or leased", block));
        }
        let node = group.nodes[block as usize];
        if node != NONE && group.companions[node as usize].block != block {
            return Some(("a companion is its node's", block));
        }
    }
    let lost = (0u32..).zip(&group.companions).find(|&(node, companion)| {
        let is_its = companion.block == NONE || group.nodes[companion.block as usize] == node;
        !is_its || (companion.block != NONE && !is_member(node))
    });
    lost.map(|(_, companion)| ("who has a companion is in the tree", companion.block))
}
fn law(holds: bool, name: &str, block: u32) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::internal(format!("KV law broken at block {block}: {name}"))) }
}
