//! Functions made of the vector's own operations, so that they give the same bits everywhere.

use super::F32x16;

/// `e^x = 2^n e^r` with `n = round(x / ln 2)` and `|r| <= ln 2 / 2`; `e^r` by the Taylor polynomial of degree 7,
/// whose remainder is below 2^-27 there. `ln 2` is split in two parts so that `x - n ln 2` is exact enough.
#[inline(always)]
pub unsafe fn exp<V: F32x16>(x: V) -> V {
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    const TAYLOR: [f32; 7] = [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 1.0 / 2.0, 1.0, 1.0];
    // SAFETY: the caller has V's instruction set.
    unsafe {
        let x = V::splat(88.0).min(V::splat(-87.0).max(x));
        let n = x.mul(V::splat(std::f32::consts::LOG2_E)).round();
        let r = n.fma(V::splat(-LN2_HIGH), x);
        let r = n.fma(V::splat(-LN2_LOW), r);
        let mut sum = V::splat(1.0 / 5040.0);
        for coefficient in TAYLOR {
            sum = sum.fma(r, V::splat(coefficient));
        }
        sum.mul(n.pow2())
    }
}
