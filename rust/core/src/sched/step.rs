//! One planned step, and the record of it until its result is committed.

use crate::frame::Dims;
use crate::ids::{BlockId, Slot};
use crate::kv::Copies;

/// One sequence's share of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Whose it is.
    pub sequence: usize,
    /// The stay among the running that it belongs to.
    pub ticket: u64,
    /// Position of the first token.
    pub start: usize,
    /// Tokens computed, at least 1.
    pub len: usize,
    /// A token is sampled after the last one.
    pub samples: bool,
    /// Log-probabilities of prompt tokens are asked.
    pub prompt_logprobs: bool,
}

/// `table[group][slot][index] = block`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta {
    /// Of which layer group; 0 is the spine.
    pub group: usize,
    /// Whose table.
    pub slot: Slot,
    /// Which entry.
    pub index: usize,
    /// Its new value.
    pub block: BlockId,
}

/// What a step does, in the order in which workers apply it.
#[derive(Debug)]
pub struct Step {
    /// Counts from 1.
    pub number: u64,
    /// Slots that ended since the last step.
    pub freed: Vec<Slot>,
    /// Sequences that begin in a slot.
    pub begun: Vec<usize>,
    /// Changes to block tables.
    pub deltas: Vec<Delta>,
    /// Blocks that move between device and host before the rows.
    pub copies: Copies,
    /// The work; rows of one token come first.
    pub rows: Vec<Row>,
    /// Tokens of all rows.
    pub tokens: usize,
}

impl Step {
    /// An empty step with memory for the largest one, so that planning never
    /// allocates.
    pub fn with_capacity(dims: &Dims) -> Self {
        Self {
            number: 0,
            freed: Vec::with_capacity(2 * dims.slots),
            begun: Vec::with_capacity(dims.slots),
            deltas: Vec::with_capacity(dims.deltas),
            copies: Copies::with_capacity(dims.copies),
            rows: Vec::with_capacity(dims.slots),
            tokens: 0,
        }
    }

    /// Empties the step and keeps its memory.
    pub fn clear(&mut self) {
        self.freed.clear();
        self.begun.clear();
        self.deltas.clear();
        self.copies.clear();
        self.rows.clear();
        self.tokens = 0;
    }
}
