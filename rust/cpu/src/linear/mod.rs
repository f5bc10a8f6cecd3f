//! `y = x W^T + b` with weights repacked once at load.
//!
//! A weight `[N, K]` becomes panels of 16 output columns, `[N / 16][K][16]`, so that one vector holds one step of 16
//! outputs. Each output element is one chain of fused multiply-adds over `k = 0, 1, ..`, in f32, whatever the number
//! of rows: one row streams the panels at the speed of memory, many rows use register tiles over panels that stay
//! in the second-level cache, and both add in the same order.

mod kernel;
mod pack;
mod rows;

pub use pack::{PackedWeight, WeightRef};
pub use rows::packed_rows;

use crate::buffer::Buffer;
use crate::pool::AssumeSync;
use crate::simd::{LANES, dispatch};
use crate::{Cpu, MatMut, MatRef};
use kernel::{Block, PackRows, PanelPair};
use std::cell::RefCell;

/// Weight rows of one pass: two panels of this many rows in f32 take a quarter of a typical second-level cache.
const BLOCK_K: usize = 2048;
/// Bytes of packed input that one pass over the panels uses: half of a typical second-level cache.
const BLOCK_BYTES: usize = 512 << 10;
/// Below this many elements the caller packs the input by itself.
const PACK_ALONE: usize = 1 << 14;

thread_local! {
    static INPUT: RefCell<Buffer> = RefCell::new(Buffer::zeroed(1 << 16));
}

/// How `rows` are cut into tiles of at most `limit` rows whose sizes differ by at most one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiles {
    rows: usize,
    count: usize,
}

impl Tiles {
    pub(crate) fn new(rows: usize, limit: usize) -> Self {
        Self { rows, count: rows.div_ceil(limit) }
    }

    /// How many there are.
    pub(crate) fn count(self) -> usize {
        self.count
    }

    /// The first row of tile `i`; of tile `count`, the number of rows.
    pub(crate) fn start(self, i: usize) -> usize {
        self.rows * i / self.count
    }
}

/// `out[m, n] = sum_k x[m, k] w[n, k] + bias[n]`, accumulated in f32 and rounded once to the type of `out`.
///
/// # Safety
/// `x` is of `x.rows` rows of `w.k()` elements, `out` of as many rows of `w.n()` elements; they do not overlap.
///
/// # Panics
/// When `x` and `out` differ in rows.
pub unsafe fn linear(cpu: &Cpu, w: &PackedWeight, x: MatRef, out: MatMut) {
    assert_eq!(x.rows, out.rows, "linear: input and output differ in rows");
    if x.rows == 0 {
        return;
    }
    let depth = w.padded_k();
    let limit = kernel::tile_rows(cpu.isa);
    let tiles = Tiles::new(x.rows, limit);
    INPUT.with_borrow_mut(|input| {
        let packed = if x.rows == 1 && x.dtype == crate::DType::F32 && depth == w.k() {
            x.data.cast::<f32>()
        } else {
            let packed = input.reserve(x.rows * depth * size_of::<f32>()).cast::<f32>();
            pack_input(cpu, x, w.k(), depth, tiles, packed);
            packed
        };
        let tiles_of_block =
            (BLOCK_BYTES / (depth.min(BLOCK_K) * size_of::<f32>() * limit)).clamp(1, tiles.count);
        let blocks = tiles.count.div_ceil(tiles_of_block);
        let pairs = w.panels().div_ceil(2);
        let block = Block { w, packed, depth, tiles, out };
        let shared = AssumeSync(&block);
        cpu.pool.run(blocks * pairs, |chunk, _| {
            let first = chunk / pairs * tiles_of_block;
            let range = first..(first + tiles_of_block).min(tiles.count);
            let pair = PanelPair { block: shared.get(), panel: chunk % pairs * 2, tiles: range };
            // SAFETY: `cpu.isa` is available; the matrices are as `linear` demands, `packed` holds the input in
            // tiles, and each chunk writes the outputs of its own tiles and panels only.
            unsafe { dispatch(cpu.isa, pair) }
        });
    });
}

/// Writes the rows as f32 tiles `[depth][rows of the tile]`, zero from `k` on.
fn pack_input(cpu: &Cpu, x: MatRef, k: usize, depth: usize, tiles: Tiles, packed: *mut f32) {
    let target = AssumeSync(packed);
    let pack = |tile: usize| {
        let (first, end) = (tiles.start(tile), tiles.start(tile + 1));
        // SAFETY: as `linear` demands of `x`; the tile lies within the `rows * depth` floats reserved, and tiles do
        // not overlap.
        unsafe {
            let to = target.get().add(first * depth);
            dispatch(cpu.isa, PackRows { x, first, end, k, depth, to });
        }
    };
    if x.rows * depth < PACK_ALONE {
        (0..tiles.count).for_each(pack);
    } else {
        cpu.pool.run(tiles.count, |tile, _| pack(tile));
    }
}

const _: () = assert!(LANES == 16);

#[cfg(test)]
mod tests;
