//! The softmax's state between keys: for each query its greatest score, its sum in 16 lanes and its mixed values.

use super::{Attention, Item};
use crate::MatMut;
use crate::dtype::with_element;
use crate::simd::{F32x16, Kernel, LANES};
use crate::tile::MAX_ROWS;

/// Floats of one column pair of a state: as the register tile leaves its sums.
const PAIR: usize = 2 * LANES;

/// Where the parts of a state lie. Rows are queries: `token * group + head within the group`.
#[derive(Clone, Copy, Debug)]
pub struct StateLayout {
    /// Queries.
    pub rows: usize,
    /// Pairs of panels of 16 values.
    pub pairs: usize,
}

impl StateLayout {
    /// Of the queries of an item.
    pub fn new(call: &Attention<'_>, item: &Item) -> Self {
        Self { rows: item.tokens * call.heads / call.kv_heads, pairs: call.head_dim.div_ceil(PAIR) }
    }

    /// Rows that the register tile may touch: it always writes whole tiles.
    fn room(self) -> usize {
        self.rows + MAX_ROWS
    }

    /// Floats of a state: greatest `[room]`, sums `[room][16]`, mixed values `[pairs][room][32]`.
    pub fn floats(self) -> usize {
        (self.room() * (1 + LANES + self.pairs * PAIR)).next_multiple_of(LANES)
    }

    /// Bytes of a state.
    pub fn bytes(self) -> usize {
        self.floats() * size_of::<f32>()
    }

    /// The greatest score of row `row`.
    pub fn greatest(self, state: *mut f32, row: usize) -> *mut f32 {
        debug_assert!(row < self.rows);
        state.wrapping_add(row)
    }

    /// The sum of row `row`.
    pub fn sum(self, state: *mut f32, row: usize) -> *mut f32 {
        state.wrapping_add(self.room() + row * LANES)
    }

    /// The mixed values of row `row` in column pair `pair`.
    pub fn mixed(self, state: *mut f32, pair: usize, row: usize) -> *mut f32 {
        state.wrapping_add(self.room() * (1 + LANES) + (pair * self.room() + row) * PAIR)
    }

    /// Multiplies a row's sum and mixed values.
    ///
    /// # Safety
    /// `state` is a state of this layout, `row` one of its rows, and the machine has V's instruction set.
    #[inline(always)]
    pub unsafe fn scale<V: F32x16>(self, state: *mut f32, row: usize, factor: V) {
        // SAFETY: the caller's.
        unsafe {
            let sum = self.sum(state, row);
            V::load(sum).mul(factor).store(sum);
            for pair in 0..self.pairs {
                for half in 0..2 {
                    let mixed = self.mixed(state, pair, row).add(half * LANES);
                    V::load(mixed).mul(factor).store(mixed);
                }
            }
        }
    }
}

/// Merges the state of a later section into that of the sections before it.
pub struct Merge {
    pub layout: StateLayout,
    pub into: *mut f32,
    pub from: *mut f32,
}

impl Kernel for Merge {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: F32x16>(self) {
        let Self { layout, into, from } = self;
        // SAFETY: the caller gives two states of this layout.
        unsafe {
            for row in 0..layout.rows {
                let (a, b) = (*layout.greatest(into, row), *layout.greatest(from, row));
                if b == f32::NEG_INFINITY {
                    continue;
                }
                let most = if a > b { a } else { b };
                if a != most {
                    // With nothing before, the row's sums are zero and stay so.
                    let factor = if a == f32::NEG_INFINITY { V::zero() } else { V::splat(a - most).exp() };
                    layout.scale(into, row, factor);
                }
                let factor = V::splat(b - most).exp();
                *layout.greatest(into, row) = most;
                let sum = layout.sum(into, row);
                V::load(layout.sum(from, row)).fma(factor, V::load(sum)).store(sum);
                for pair in 0..layout.pairs {
                    let (to, add) = (layout.mixed(into, pair, row), layout.mixed(from, pair, row));
                    for half in [0, LANES] {
                        V::load(add.add(half)).fma(factor, V::load(to.add(half))).store(to.add(half));
                    }
                }
            }
        }
    }
}

/// Divides by the sums and writes the outputs.
pub struct Finish<'a> {
    pub call: &'a Attention<'a>,
    pub item: Item,
    pub layout: StateLayout,
    pub state: *mut f32,
    pub out: MatMut,
}

impl Kernel for Finish<'_> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: F32x16>(self) {
        let Self { call, item, layout, state, out } = self;
        let (group, dim) = (call.heads / call.kv_heads, call.head_dim);
        for row in 0..layout.rows {
            // SAFETY: the row is one of the item's, and `count` keeps within its head.
            unsafe {
                let total = V::splat(V::load(layout.sum(state, row)).sum());
                let head = item.kv_head * group + row % group;
                let to = out.row(item.first_token + row / group);
                for start in (0..dim).step_by(LANES) {
                    let mixed = layout.mixed(state, start / PAIR, row).add(start % PAIR);
                    let count = LANES.min(dim - start);
                    let y = V::load(mixed).div(total);
                    with_element!(out.dtype, T => y.store_some(to.cast::<T>().add(head * dim + start), count));
                }
            }
        }
    }
}
