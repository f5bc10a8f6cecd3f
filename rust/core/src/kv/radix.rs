//! The prefix cache: a tree whose node is one full block, keyed by all tokens
//! from the start of the sequence and a salt.
//!
//! Nodes are indexed by block number, so the tree allocates nothing after
//! start, and a node, its block and its place in the eviction order share one
//! number. Descent goes through one hash table for the whole tree instead of a
//! map per node.

use super::hash;
use super::identity::BlockHash;
use super::index::{Index, NONE};
use crate::ids::Token;

#[derive(Clone, Copy, Debug)]
struct Node {
    key: u64,
    salt: u64,
    /// Step that computes the block's content.
    step: u64,
    parent: u32,
    first_child: u32,
    next_sibling: u32,
    prev_sibling: u32,
    member: bool,
}

const VACANT: Node = Node {
    key: 0,
    salt: 0,
    step: 0,
    parent: NONE,
    first_child: NONE,
    next_sibling: NONE,
    prev_sibling: NONE,
    member: false,
};

/// See the module's documentation.
#[derive(Debug)]
pub struct RadixTree {
    block_size: usize,
    nodes: Vec<Node>,
    /// `[blocks, block_size]` content of each member.
    tokens: Vec<Token>,
    index: Index,
    /// Of the blocks that are about to be inserted.
    keys: Vec<u64>,
    /// By block, of members; empty unless they were asked for.
    identities: Vec<BlockHash>,
}

impl RadixTree {
    /// An empty tree over `blocks` blocks of `block_size` tokens. It knows the
    /// identities of its members only if they are asked for.
    pub fn new(blocks: usize, block_size: usize, identities: bool) -> Self {
        Self {
            block_size,
            nodes: vec![VACANT; blocks],
            // Not zeroes: the system would find their memory when it is touched, in a step.
            tokens: vec![Token::MAX; blocks * block_size],
            index: Index::new(blocks),
            keys: Vec::new(),
            identities: vec![BlockHash([0; 32]); if identities { blocks } else { 0 }],
        }
    }

    /// The identity of a member, if identities were asked for.
    pub fn identity(&self, block: u32) -> Option<BlockHash> {
        self.identities.get(block as usize).copied().filter(|_| self.contains(block))
    }

    /// True if the block is in the tree.
    pub fn contains(&self, block: u32) -> bool {
        self.nodes[block as usize].member
    }

    /// The block's parent, if it has one.
    pub fn parent(&self, block: u32) -> Option<u32> {
        let parent = self.nodes[block as usize].parent;
        (parent != NONE).then_some(parent)
    }

    /// The salt that a member is under.
    pub fn salt(&self, block: u32) -> u64 {
        self.nodes[block as usize].salt
    }

    /// Appends to `found` the blocks that hold the start of `tokens`, at most
    /// `most` of them. Stops at a block that step `step` computes, for that step
    /// cannot read it yet, and returns true then.
    pub fn find_prefix(
        &self,
        salt: u64,
        tokens: &[Token],
        most: usize,
        step: u64,
        found: &mut Vec<u32>,
    ) -> bool {
        let mut key = hash::root(salt);
        let mut parent = NONE;
        for content in tokens.chunks_exact(self.block_size).take(most) {
            key = hash::chain(key, content);
            let Some(block) = self.find(key, parent, salt, content) else { return false };
            if self.nodes[block as usize].step == step {
                return true;
            }
            found.push(block);
            parent = block;
        }
        false
    }

    /// Computes the keys of blocks that hold `tokens`, the first of them under
    /// `parent`, for [`Self::insert`]. The more at once, the faster.
    pub fn prepare(&mut self, salt: u64, parent: Option<u32>, tokens: &[Token]) {
        let mut key = parent.map_or_else(|| hash::root(salt), |parent| self.nodes[parent as usize].key);
        self.keys.clear();
        for content in tokens.chunks_exact(self.block_size) {
            key = hash::chain(key, content);
            self.keys.push(key);
        }
        self.index.touch(self.keys.iter().copied());
    }

    /// Puts `block`, number `at` of those prepared, with `content` under `parent`,
    /// which must be a member, or returns the member that already holds the same.
    pub fn insert(
        &mut self,
        salt: u64,
        parent: Option<u32>,
        content: &[Token],
        (at, block): (usize, u32),
        step: u64,
    ) -> Option<u32> {
        let key = self.keys[at];
        let parent = parent.unwrap_or(NONE);
        // A parent without children, as most are, need not be searched.
        if (parent == NONE || self.nodes[parent as usize].first_child != NONE)
            && let Some(twin) = self.find(key, parent, salt, content)
        {
            return Some(twin);
        }
        let start = block as usize * self.block_size;
        self.tokens[start..start + self.block_size].copy_from_slice(content);
        self.nodes[block as usize] = Node { key, salt, step, parent, member: true, ..VACANT };
        self.index.insert(key, block);
        if !self.identities.is_empty() {
            self.identities[block as usize] = self.identity_of(block);
        }
        if parent != NONE {
            let sibling = std::mem::replace(&mut self.nodes[parent as usize].first_child, block);
            self.nodes[block as usize].next_sibling = sibling;
            if sibling != NONE {
                self.nodes[sibling as usize].prev_sibling = block;
            }
        }
        None
    }

    /// Call it before many members are removed: it makes that faster.
    pub fn prepare_removal(&self, blocks: impl Iterator<Item = u32>) {
        self.index.touch(blocks.map(|block| self.nodes[block as usize].key));
    }

    /// Takes a leaf out of the tree.
    pub fn remove_leaf(&mut self, block: u32) {
        let node = self.nodes[block as usize];
        debug_assert!(node.member && node.first_child == NONE);
        if node.parent != NONE {
            match node.prev_sibling {
                NONE => self.nodes[node.parent as usize].first_child = node.next_sibling,
                prev => self.nodes[prev as usize].next_sibling = node.next_sibling,
            }
            if node.next_sibling != NONE {
                self.nodes[node.next_sibling as usize].prev_sibling = node.prev_sibling;
            }
        }
        self.index.remove(node.key, block);
        self.nodes[block as usize] = VACANT;
    }

    /// A leaf at or under `block`.
    pub fn leaf_under(&self, block: u32) -> u32 {
        let mut leaf = block;
        while self.nodes[leaf as usize].first_child != NONE {
            leaf = self.nodes[leaf as usize].first_child;
        }
        leaf
    }

    /// The members.
    pub fn members(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.nodes.len() as u32).filter(|&block| self.contains(block))
    }

    /// Empties the tree.
    pub fn clear(&mut self) {
        self.nodes.fill(VACANT);
        self.index.clear();
    }

    /// The member with this key, place and content.
    fn find(&self, key: u64, parent: u32, salt: u64, content: &[Token]) -> Option<u32> {
        self.index.find(key, |block| {
            let node = &self.nodes[block as usize];
            node.key == key && node.parent == parent && node.salt == salt && self.content(block) == content
        })
    }

    /// A member's identity, computed from its parent's.
    pub fn identity_of(&self, block: u32) -> BlockHash {
        let node = &self.nodes[block as usize];
        let parent = match node.parent {
            NONE => BlockHash::root(node.salt),
            parent => self.identities[parent as usize],
        };
        parent.child(self.content(block))
    }

    /// The tokens of a member.
    pub fn content(&self, block: u32) -> &[Token] {
        let start = block as usize * self.block_size;
        &self.tokens[start..start + self.block_size]
    }

    /// True if a search for the member's own content finds the member.
    pub fn finds_itself(&self, block: u32) -> bool {
        let node = &self.nodes[block as usize];
        self.find(node.key, node.parent, node.salt, self.content(block)) == Some(block)
    }
}
