//! The register tile: a few rows of a left matrix times two panels of 16 columns.
//!
//! Every output is one chain of fused multiply-adds in the order of `k`, so cutting rows into tiles, columns into
//! panels or `k` into passes never changes a bit.

use crate::simd::{F32x16, LANES};
use half::{bf16, f16};

/// Most rows of a tile on any instruction set.
pub const MAX_ROWS: usize = 12;

/// How a weight type is read: `GROUP` steps of 16 columns at once.
pub trait Weight<const GROUP: usize> {
    /// What a panel holds.
    type Element: Copy;
    /// Loads the group at `p`.
    ///
    /// # Safety
    /// `GROUP * 16` elements are there, and the machine has V's instruction set.
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

/// Sums of a tile of rows by two panels: `[row][panel][16]`.
pub type Sums = [[f32; 2 * LANES]; MAX_ROWS];

/// `sums[row][panel] += sum_k a[k][row] b[panel][k]`, from zero when `fresh`.
///
/// The left matrix is `[k][row]` when `STRIDE` is 1, else `[row][k]` with rows `STRIDE` apart. `b` are the starts of
/// two panels `[k][16]`. `steps` is a multiple of `G`.
///
/// # Safety
/// `rows` is from 1 to `V::TILE_ROWS`, the matrices hold what this says, and the machine has V's instruction set.
#[inline(always)]
pub unsafe fn tile_of<V: F32x16, W: Weight<G>, const G: usize, const STRIDE: usize>(
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
                $($rows => unsafe { narrow_or_wide::<V, W, G, STRIDE, $rows>(a, b, steps, sums, fresh) },)*
                _ => unreachable!("a tile has at most {MAX_ROWS} rows"),
            }
        };
    }
    debug_assert_eq!(steps % G, 0);
    if V::TILE_ROWS > 6 {
        choose!(1 2 3 4 5 6 7 8 9 10 11 12);
    } else if V::TILE_ROWS > 4 {
        choose!(1 2 3 4 5 6);
    } else {
        choose!(1 2 3 4);
    }
}

/// Both panels at once where the accumulators fit the registers, else one after the other.
#[inline(always)]
unsafe fn narrow_or_wide<V: F32x16, W: Weight<G>, const G: usize, const STRIDE: usize, const ROWS: usize>(
    a: *const f32,
    b: [*const W::Element; 2],
    steps: usize,
    sums: &mut Sums,
    fresh: bool,
) {
    // SAFETY: the caller's.
    unsafe {
        if V::TILE_ROWS > 6 || ROWS <= 2 {
            tile::<V, W, G, STRIDE, ROWS, 2>(a, b, steps, sums, 0, fresh);
        } else {
            tile::<V, W, G, STRIDE, ROWS, 1>(a, [b[0]], steps, sums, 0, fresh);
            tile::<V, W, G, STRIDE, ROWS, 1>(a, [b[1]], steps, sums, 1, fresh);
        }
    }
}

#[inline(always)]
unsafe fn tile<
    V: F32x16,
    W: Weight<G>,
    const G: usize,
    const STRIDE: usize,
    const ROWS: usize,
    const PANELS: usize,
>(
    a: *const f32,
    b: [*const W::Element; PANELS],
    steps: usize,
    sums: &mut Sums,
    panel: usize,
    fresh: bool,
) {
    // SAFETY: the caller's: `a` has `steps * ROWS` floats, each panel `steps * 16` elements, `panel + PANELS <= 2`.
    unsafe {
        let mut acc = [[V::zero(); PANELS]; ROWS];
        let place = |sums: &mut Sums, row: usize, p: usize| sums[row].as_mut_ptr().add((panel + p) * LANES);
        if !fresh {
            for (row, acc) in acc.iter_mut().enumerate() {
                for (p, acc) in acc.iter_mut().enumerate() {
                    *acc = V::load(place(sums, row, p));
                }
            }
        }
        for k in (0..steps).step_by(G) {
            let mut w = [[V::zero(); G]; PANELS];
            for (w, b) in w.iter_mut().zip(b) {
                *w = W::load(b.add(k * LANES));
            }
            for step in 0..G {
                for (row, acc) in acc.iter_mut().enumerate() {
                    let at = if STRIDE == 1 { (k + step) * ROWS + row } else { row * STRIDE + k + step };
                    let x = V::splat(*a.add(at));
                    for (acc, w) in acc.iter_mut().zip(&w) {
                        *acc = x.fma(w[step], *acc);
                    }
                }
            }
        }
        for (row, acc) in acc.iter().enumerate() {
            for (p, acc) in acc.iter().enumerate() {
                acc.store(place(sums, row, p));
            }
        }
    }
}
