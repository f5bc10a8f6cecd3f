//! The loops around the register tile.

use super::{BLOCK_K, PackedWeight, Tiles};
use crate::dtype::with_element;
use crate::simd::{F32x16, Kernel, LANES, Lane, Scalar, dispatch};
use crate::tile::{MAX_ROWS, Sums, Weight, tile_of};
use crate::{DType, Isa, MatMut, MatRef};
use half::{bf16, f16};
use std::ops::Range;

/// Most tiles of a block that spans more than one pass over k.
const MAX_TILES: usize = 64;

/// Rows of the largest tile.
pub(super) fn tile_rows(isa: Isa) -> usize {
    struct Rows;
    impl Kernel for Rows {
        type Output = usize;
        #[inline(always)]
        unsafe fn run<V: F32x16>(self) -> usize {
            V::TILE_ROWS
        }
    }
    match isa {
        Isa::Scalar => Scalar::TILE_ROWS,
        // SAFETY: a `Cpu` holds an available set.
        _ => unsafe { dispatch(isa, Rows) },
    }
}

/// Packs rows `first..end` of `x` as one tile of f32.
pub(super) struct PackRows {
    pub x: MatRef,
    pub first: usize,
    pub end: usize,
    pub k: usize,
    pub depth: usize,
    pub to: *mut f32,
}

impl Kernel for PackRows {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: F32x16>(self) {
        // SAFETY: the caller's, by the fields' meaning.
        with_element!(self.x.dtype, T => unsafe { self.pack::<V, T>() });
    }
}

impl PackRows {
    #[inline(always)]
    unsafe fn pack<V: F32x16, T: Lane>(&self) {
        let rows = self.end - self.first;
        // SAFETY: `k <= depth`; the source row has `k` elements and the tile `rows * depth`.
        unsafe {
            for row in 0..rows {
                let from = self.x.row(self.first + row).cast::<T>();
                let mut lanes = [0.0f32; LANES];
                for start in (0..self.k).step_by(LANES) {
                    let count = LANES.min(self.k - start);
                    if rows == 1 {
                        V::load_some(from.add(start), count).store_some(self.to.add(start), count);
                        continue;
                    }
                    V::load_some(from.add(start), count).store(lanes.as_mut_ptr());
                    for (i, &x) in lanes[..count].iter().enumerate() {
                        *self.to.add((start + i) * rows + row) = x;
                    }
                }
                for k in self.k..self.depth {
                    *self.to.add(k * rows + row) = 0.0;
                }
            }
        }
    }
}

/// A product: everything that its chunks share.
pub(super) struct Block<'a> {
    pub w: &'a PackedWeight,
    pub packed: *const f32,
    pub depth: usize,
    pub tiles: Tiles,
    pub out: MatMut,
}

/// One chunk: some tiles of rows times two panels of columns.
pub(super) struct PanelPair<'a> {
    pub block: &'a Block<'a>,
    pub panel: usize,
    pub tiles: Range<usize>,
}

impl Kernel for PanelPair<'_> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: F32x16>(self) {
        // SAFETY: the caller's.
        unsafe {
            match self.block.w.dtype() {
                DType::F32 => self.multiply::<V, f32, 1>(),
                DType::F16 => self.multiply::<V, f16, 1>(),
                DType::Bf16 => self.multiply::<V, bf16, 2>(),
            }
        }
    }
}

impl PanelPair<'_> {
    #[inline(always)]
    unsafe fn multiply<V: F32x16, W: Weight<G>, const G: usize>(&self) {
        let Block { w, packed, depth, tiles, .. } = *self.block;
        let second = if self.panel + 1 < w.panels() { self.panel + 1 } else { self.panel };
        let b = [w.panel(self.panel), w.panel(second)].map(<*const u8>::cast::<W::Element>);
        if depth <= BLOCK_K {
            let mut sums: Sums = [[0.0; 2 * LANES]; MAX_ROWS];
            for tile in self.tiles.clone() {
                let (first, rows) = (tiles.start(tile), tiles.start(tile + 1) - tiles.start(tile));
                // SAFETY: the tile and both panels have `depth` steps.
                unsafe {
                    let a = packed.add(first * depth);
                    tile_of::<V, W, G, 1>(rows, a, b, depth, &mut sums, true);
                    self.finish::<V>(first, rows, &sums);
                }
            }
            return;
        }
        for start in self.tiles.clone().step_by(MAX_TILES) {
            let tiles = start..self.tiles.end.min(start + MAX_TILES);
            // SAFETY: as above.
            unsafe { self.multiply_deep::<V, W, G>(b, tiles) };
        }
    }

    /// Long sums in several passes over k, so that the panels' part stays in the cache; the sums wait in memory.
    #[inline(always)]
    unsafe fn multiply_deep<V: F32x16, W: Weight<G>, const G: usize>(
        &self,
        b: [*const W::Element; 2],
        range: Range<usize>,
    ) {
        let Block { packed, depth, tiles, .. } = *self.block;
        let mut sums: Vec<Sums> = vec![[[0.0; 2 * LANES]; MAX_ROWS]; range.len()];
        for k in (0..depth).step_by(BLOCK_K) {
            let steps = BLOCK_K.min(depth - k);
            for (tile, sums) in range.clone().zip(&mut sums) {
                let (first, rows) = (tiles.start(tile), tiles.start(tile + 1) - tiles.start(tile));
                // SAFETY: steps `k..k + steps` lie within the tile and both panels.
                unsafe {
                    let a = packed.add(first * depth + k * rows);
                    tile_of::<V, W, G, 1>(rows, a, b.map(|b| b.add(k * LANES)), steps, sums, k == 0);
                }
            }
        }
        for (tile, sums) in range.zip(&sums) {
            let first = tiles.start(tile);
            // SAFETY: the rows are the tile's.
            unsafe { self.finish::<V>(first, tiles.start(tile + 1) - first, sums) };
        }
    }

    /// Adds the bias and writes rows `first..first + rows`.
    #[inline(always)]
    unsafe fn finish<V: F32x16>(&self, first: usize, rows: usize, sums: &Sums) {
        let Block { w, out, .. } = *self.block;
        // SAFETY: the output has `n` columns, and `columns` keeps within them.
        unsafe {
            for half in 0..2.min(w.panels() - self.panel) {
                let column = (self.panel + half) * LANES;
                let columns = LANES.min(w.n() - column);
                let bias = V::load(w.panel_bias(self.panel + half));
                for (row, sums) in sums[..rows].iter().enumerate() {
                    let y = V::load(sums[half * LANES..].as_ptr()).add(bias);
                    let to = out.row(first + row);
                    with_element!(out.dtype, T => y.store_some(to.cast::<T>().add(column), columns));
                }
            }
        }
    }
}
