//! What is left of a step: tokens, and room in the frame's columns.

use crate::frame::Dims;

/// Rows need no count here: every row has a slot, and there are as many.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Tokens still to give out.
    pub tokens: usize,
    /// Block table entries of the spine that the frame still takes; what the other
    /// groups need fits if these do.
    pub deltas: usize,
    /// Words that the frame's heap still takes.
    pub heap: usize,
}

impl Budget {
    /// A whole step.
    pub fn new(dims: &Dims) -> Self {
        Self { tokens: dims.tokens, deltas: dims.spine_deltas, heap: dims.heap }
    }
}
