//! Rounding of inputs, and the register tile of integers.

use super::Int8Weight;
use crate::bytes::Scale;
use crate::elementwise::{load, store as store_lanes};
use crate::linear::Tiles;
use crate::simd::{F32x16, Kernel, LANES, Scalar, dispatch};
use crate::{Isa, MatMut, MatRef};
use std::ops::Range;

/// Inputs multiplied by one instruction.
pub const GROUP: usize = 4;
/// Most rows of a tile on any instruction set.
const MAX_ROWS: usize = 12;

/// Rows of the largest tile.
pub fn tile_rows(isa: Isa) -> usize {
    struct Rows;
    impl Kernel for Rows {
        type Output = usize;
        #[inline(always)]
        unsafe fn run<V: F32x16>(self) -> usize {
            limit::<V>()
        }
    }
    match isa {
        Isa::Scalar => limit::<Scalar>(),
        // SAFETY: a `Cpu` holds an available set.
        _ => unsafe { dispatch(isa, Rows) },
    }
}

/// Where vectors are two registers, products need some of them as well.
const fn limit<V: F32x16>() -> usize {
    if V::TILE_ROWS > 6 { MAX_ROWS } else { 4 }
}

/// Quantised rows: for each tile the integers as `[groups][rows of the tile][4]`, then for each row its scale, then for
/// each row the sum of its integers.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    pub start: *mut u8,
    pub groups: usize,
    pub tiles: Tiles,
}

impl Input {
    pub fn bytes(rows: usize, groups: usize) -> usize {
        rows * (groups * GROUP + size_of::<f32>() + size_of::<i32>())
    }

    /// First row and number of rows of a tile.
    fn rows(self, tile: usize) -> (usize, usize) {
        (self.tiles.start(tile), self.tiles.start(tile + 1) - self.tiles.start(tile))
    }

    fn integers(self, tile: usize) -> *mut i32 {
        self.start.cast::<i32>().wrapping_add(self.tiles.start(tile) * self.groups)
    }

    fn scale(self, row: usize) -> *mut f32 {
        self.start.cast::<f32>().wrapping_add(self.tiles.start(self.tiles.count()) * self.groups + row)
    }

    fn sum(self, row: usize) -> *mut i32 {
        self.scale(self.tiles.start(self.tiles.count()) + row).cast()
    }
}

/// Quantises the rows of a tile.
pub struct QuantizeTile {
    pub x: MatRef,
    pub k: usize,
    pub input: Input,
    pub tile: usize,
}

impl Kernel for QuantizeTile {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: F32x16>(self) {
        let (first, rows) = self.input.rows(self.tile);
        for row in 0..rows {
            // SAFETY: the row has `k` elements, and its tile room for `groups * 4` of each row.
            unsafe {
                let from = self.x.row(first + row);
                let scale = Scale::of::<V>(self.x.dtype, from, 0, self.k);
                let to = self.input.integers(self.tile).add(row);
                let mut total = 0;
                for start in (0..self.k).step_by(LANES) {
                    let bytes = scale.round(load::<V>(self.x.dtype, from, start, LANES.min(self.k - start)));
                    total += bytes.into_iter().map(i32::from).sum::<i32>();
                    let groups = (self.input.groups - start / GROUP).min(LANES / GROUP);
                    for (group, four) in bytes.as_chunks::<GROUP>().0[..groups].iter().enumerate() {
                        let four = i32::from_ne_bytes(four.map(i8::cast_unsigned));
                        *to.add((start / GROUP + group) * rows) = four;
                    }
                }
                *self.input.scale(first + row) = scale.back;
                *self.input.sum(first + row) = total;
            }
        }
    }
}

/// One chunk: some tiles of rows times two panels of columns.
pub struct PanelPair<'a> {
    pub w: &'a Int8Weight,
    pub input: Input,
    pub panel: usize,
    pub tiles: Range<usize>,
    pub out: MatMut,
}

impl Kernel for PanelPair<'_> {
    const MULTIPLIES_BYTES: bool = true;
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: F32x16>(self) {
        for tile in self.tiles.clone() {
            macro_rules! choose {
                ($($rows:literal)*) => {
                    match self.input.rows(tile).1 {
                        // SAFETY: the caller's.
                        $($rows => unsafe { self.narrow_or_wide::<V, $rows>(tile) },)*
                        _ => unreachable!("a tile has at most {MAX_ROWS} rows"),
                    }
                };
            }
            if limit::<V>() == MAX_ROWS {
                choose!(1 2 3 4 5 6 7 8 9 10 11 12);
            } else {
                choose!(1 2 3 4);
            }
        }
    }
}

impl PanelPair<'_> {
    /// Both panels at once where the accumulators fit the registers, else one after the other.
    #[inline(always)]
    unsafe fn narrow_or_wide<V: F32x16, const ROWS: usize>(&self, tile: usize) {
        let both = self.panel + 1 < self.w.panel_count();
        // SAFETY: the caller's; the panels are the weight's.
        unsafe {
            if both && (limit::<V>() == MAX_ROWS || ROWS <= 2) {
                self.multiply::<V, ROWS, 2>(tile, self.panel);
            } else {
                self.multiply::<V, ROWS, 1>(tile, self.panel);
                if both {
                    self.multiply::<V, ROWS, 1>(tile, self.panel + 1);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn multiply<V: F32x16, const ROWS: usize, const PANELS: usize>(&self, tile: usize, panel: usize) {
        let Self { w, input, .. } = *self;
        let (first, _) = input.rows(tile);
        // SAFETY: tile and panels have `groups` steps; outputs are the tile's rows and the panels' columns.
        unsafe {
            let mut sums = [[V::int(0); PANELS]; ROWS];
            for (row, sums) in sums.iter_mut().enumerate() {
                *sums = [V::int((*input.sum(first + row)).wrapping_mul(-V::START)); PANELS];
            }
            let x = input.integers(tile);
            let panels: [*const u8; PANELS] = std::array::from_fn(|p| w.panel(panel + p));
            for group in 0..input.groups {
                let bytes = panels.map(|panel| V::load_bytes(panel.add(group * LANES * GROUP)));
                for (row, sums) in sums.iter_mut().enumerate() {
                    let four = *x.add(group * ROWS + row);
                    for (sum, bytes) in sums.iter_mut().zip(bytes) {
                        *sum = V::dot_wide(*sum, bytes, four);
                    }
                }
            }
            for p in 0..PANELS {
                let column = (panel + p) * LANES;
                let columns = LANES.min(w.n - column);
                let (scale, bias) = (V::load(w.scale[column..].as_ptr()), V::load(w.bias[column..].as_ptr()));
                for (row, sums) in sums.iter().enumerate() {
                    let scale = scale.mul(V::splat(*input.scale(first + row)));
                    let y = V::from_int(sums[p]).fma(scale, bias);
                    store_lanes(y, self.out.dtype, self.out.row(first + row), column, columns);
                }
            }
        }
    }
}
