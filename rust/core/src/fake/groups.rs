//! Layer groups beside the spine on the fake device.
//!
//! They hold the spine's words: a window those of its tokens, a state that of the
//! last token and how many there were. What a row reads must be there.

use std::ops::Range;

use super::{Cell, place, rule};
use crate::error::Result;
use crate::kv::Keep;
use crate::limits::GroupLimits;

/// One group.
#[derive(Clone, Debug)]
pub struct FakeGroup {
    keep: Keep,
    block_size: usize,
    cells: Vec<Cell>,
    /// Of states: how many tokens a block's state is after.
    counts: Vec<usize>,
}

impl FakeGroup {
    /// A group without content.
    pub fn new(GroupLimits { keep, num_blocks }: GroupLimits, block_size: u32) -> Self {
        let block_size = match keep {
            Keep::Last(_) => block_size as usize,
            Keep::State { .. } | Keep::Fixed(_) => 1,
        };
        let cells = vec![Cell::default(); num_blocks as usize * block_size];
        Self { keep, block_size, cells, counts: vec![0; num_blocks as usize] }
    }

    /// Computes the tokens `computed` of a sequence in a row of a step; `now` is the
    /// step and the slot, `word` gives the spine's word at a position.
    pub fn run(
        &mut self,
        table: &[i32],
        computed: Range<usize>,
        now: (i32, i32),
        word: impl Fn(usize) -> Result<u64>,
    ) -> Result<()> {
        match self.keep {
            Keep::Last(window) => self.run_window(table, window as usize, computed, now, word),
            Keep::State { .. } => self.run_state(table, computed, now, word),
            Keep::Fixed(blocks) => self.run_fixed(table, blocks as usize, now),
        }
    }

    fn place(&self, table: &[i32], position: usize) -> Result<usize> {
        place(table, position, self.block_size, self.cells.len())
    }

    fn read(&self, place: usize, (step, slot): (i32, i32)) -> Result<u64> {
        let cell = self.cells[place];
        rule(cell.step != step || cell.slot == slot, "no row reads what another writes in this step")?;
        Ok(cell.word)
    }

    fn write(&mut self, place: usize, word: u64, (step, slot): (i32, i32)) -> Result<()> {
        rule(self.cells[place].step != step, "no two rows write one block")?;
        self.cells[place] = Cell { word, step, slot };
        Ok(())
    }

    fn run_window(
        &mut self,
        table: &[i32],
        window: usize,
        computed: Range<usize>,
        now: (i32, i32),
        word: impl Fn(usize) -> Result<u64>,
    ) -> Result<()> {
        for position in computed.clone() {
            self.write(self.place(table, position)?, word(position)?, now)?;
        }
        let oldest = (computed.start + 1).saturating_sub(window);
        for position in oldest..computed.end {
            let found = self.read(self.place(table, position)?, now)?;
            rule(found == word(position)?, "a window holds its tokens")?;
        }
        Ok(())
    }

    fn run_state(
        &mut self,
        table: &[i32],
        computed: Range<usize>,
        now: (i32, i32),
        word: impl Fn(usize) -> Result<u64>,
    ) -> Result<()> {
        let (from, to) = (self.place(table, 0)?, self.place(table, 1)?);
        if computed.start > 0 {
            rule(self.counts[from] == computed.start, "a state is after the tokens before")?;
            rule(self.read(from, now)? == word(computed.start - 1)?, "a state is its sequence's")?;
        }
        self.write(to, word(computed.end - 1)?, now)?;
        self.counts[to] = computed.end;
        Ok(())
    }

    /// No two slots have a block in one step, and all that are asked for are there.
    fn run_fixed(&mut self, table: &[i32], blocks: usize, now: (i32, i32)) -> Result<()> {
        rule(table.len() == blocks, "a sequence has all blocks of a fixed size")?;
        (0..blocks).try_for_each(|at| self.write(self.place(table, at)?, 0, now))
    }
}
