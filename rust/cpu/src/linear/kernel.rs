//! The register tile and the loops around it.

#![allow(clippy::inline_always)]

use super::{BLOCK_K, PackedWeight, Tiles, pack::group};
use crate::dtype::with_element;
use crate::simd::{F32x16, Kernel, LANES, Lane, Scalar, dispatch};
use crate::{DType, Isa, MatMut, MatRef};
use half::{bf16, f16};
use std::ops::Range;

/// Most rows of a tile on any instruction set.
const MAX_ROWS: usize = 12;
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

/// How a weight type is read: `GROUP` steps of 16 columns at once.
trait Weight<const GROUP: usize> {
    type Element: Copy;
    unsafe fn load<V: F32x16>(p: *const Self::Element) -> [V; GROUP];
}

impl Weight<1> for f32 {
    type Element = f32;
    #[inline(always)]
    unsafe fn load<V: F32x16>(p: *const f32) -> [V; 1] {
        // SAFETY: the caller's.
        [unsafe { V::load(p) }]
    }
}

impl Weight<1> for f16 {
    type Element = f16;
    #[inline(always)]
    unsafe fn load<V: F32x16>(p: *const f16) -> [V; 1] {
        // SAFETY: the caller's.
        [unsafe { V::load_f16(p.cast()) }]
    }
}

impl Weight<2> for bf16 {
    type Element = bf16;
    #[inline(always)]
    unsafe fn load<V: F32x16>(p: *const bf16) -> [V; 2] {
        // SAFETY: the caller's.
        unsafe { V::load_bf16_pairs(p.cast()) }
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

/// Sums of a tile of rows by two panels: `[row][panel][16]`.
type Sums = [[f32; 2 * LANES]; MAX_ROWS];

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
                    tile_of::<V, W, G>(rows, a, b, depth, &mut sums, true);
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
                    tile_of::<V, W, G>(rows, a, b.map(|b| b.add(k * LANES)), steps, sums, k == 0);
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

#[inline(always)]
unsafe fn tile_of<V: F32x16, W: Weight<G>, const G: usize>(
    rows: usize,
    a: *const f32,
    b: [*const W::Element; 2],
    steps: usize,
    sums: &mut Sums,
    fresh: bool,
) {
    macro_rules! choose {
        ($($rows:literal)*) => {
            match rows {
                // SAFETY: the caller's.
                $($rows => unsafe { narrow_or_wide::<V, W, G, $rows>(a, b, steps, sums, fresh) },)*
                _ => unreachable!("a tile has at most {MAX_ROWS} rows"),
            }
        };
    }
    debug_assert_eq!(steps % group_of::<G>(), 0);
    if V::TILE_ROWS > 6 {
        choose!(1 2 3 4 5 6 7 8 9 10 11 12);
    } else if V::TILE_ROWS > 4 {
        choose!(1 2 3 4 5 6);
    } else {
        choose!(1 2 3 4);
    }
}

const fn group_of<const G: usize>() -> usize {
    G
}
const _: () = assert!(group(DType::Bf16) == 2 && group(DType::F32) == 1 && group(DType::F16) == 1);

/// Both panels at once where the accumulators fit the registers, else one after the other.
#[inline(always)]
unsafe fn narrow_or_wide<V: F32x16, W: Weight<G>, const G: usize, const ROWS: usize>(
    a: *const f32,
    b: [*const W::Element; 2],
    steps: usize,
    sums: &mut Sums,
    fresh: bool,
) {
    // SAFETY: the caller's.
    unsafe {
        if V::TILE_ROWS > 6 || ROWS <= 2 {
            tile::<V, W, G, ROWS, 2>(a, b, steps, sums, 0, fresh);
        } else {
            tile::<V, W, G, ROWS, 1>(a, [b[0]], steps, sums, 0, fresh);
            tile::<V, W, G, ROWS, 1>(a, [b[1]], steps, sums, 1, fresh);
        }
    }
}

/// `sums[row][panel] += sum_k a[k][row] b[panel][k]`.
#[inline(always)]
unsafe fn tile<V: F32x16, W: Weight<G>, const G: usize, const ROWS: usize, const PANELS: usize>(
    a: *const f32,
    b: [*const W::Element; PANELS],
    steps: usize,
    sums: &mut Sums,
    panel: usize,
    fresh: bool,
) {
    // SAFETY: the caller's: `a` has `steps * ROWS` floats, each panel `steps * 16` elements, `panel + PANELS <= 2`.
    unsafe {
        let mut c = [[V::zero(); PANELS]; ROWS];
        let place = |sums: &mut Sums, row: usize, p: usize| sums[row].as_mut_ptr().add((panel + p) * LANES);
        if !fresh {
            for (row, c) in c.iter_mut().enumerate() {
                for (p, c) in c.iter_mut().enumerate() {
                    *c = V::load(place(sums, row, p));
                }
            }
        }
        for k in (0..steps).step_by(G) {
            let mut w = [[V::zero(); G]; PANELS];
            for (w, b) in w.iter_mut().zip(b) {
                *w = W::load(b.add(k * LANES));
            }
            for step in 0..G {
                for (row, c) in c.iter_mut().enumerate() {
                    let x = V::splat(*a.add((k + step) * ROWS + row));
                    for (c, w) in c.iter_mut().zip(&w) {
                        *c = x.fma(w[step], *c);
                    }
                }
            }
        }
        for (row, c) in c.iter().enumerate() {
            for (p, c) in c.iter().enumerate() {
                c.store(place(sums, row, p));
            }
        }
    }
}
