//! Floats as signed bytes with a common scale, rounded to nearest, ties to even, none of them -128.

use crate::DType;
use crate::elementwise::load;
use crate::simd::{F32x16, LANES};

/// What bytes are multiplied by to give the numbers back, and what numbers are multiplied by before they are rounded.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    pub back: f32,
    pub factor: f32,
}

impl Scale {
    /// The scale that makes `greatest`, the greatest absolute number, 127; not a number where there is a `strange` one.
    #[inline(always)]
    pub fn new(greatest: f32, strange: bool) -> Self {
        let factor = 127.0 / greatest;
        if strange || greatest == f32::INFINITY {
            Self { back: f32::NAN, factor: 0.0 }
        } else if factor == f32::INFINITY {
            // Nothing, or less than floats can divide by.
            Self { back: 0.0, factor: 0.0 }
        } else {
            Self { back: greatest / 127.0, factor }
        }
    }

    /// Of `n` elements from index `first` of a row on.
    ///
    /// # Safety
    /// They are there, and the machine has V's instruction set.
    #[inline(always)]
    pub unsafe fn of<V: F32x16>(dtype: DType, row: *const u8, first: usize, n: usize) -> Self {
        // SAFETY: the caller's.
        unsafe {
            let (mut most, mut strange) = (V::zero(), 0);
            for start in (0..n).step_by(LANES) {
                let x = load::<V>(dtype, row, first + start, LANES.min(n - start));
                strange |= x.unordered();
                most = most.max(x.max(V::zero().sub(x)));
            }
            Self::new(most.greatest(), strange != 0)
        }
    }

    /// 16 numbers as bytes.
    ///
    /// # Safety
    /// The machine has V's instruction set.
    #[inline(always)]
    pub unsafe fn round<V: F32x16>(self, x: V) -> [i8; LANES] {
        let mut lanes = [0.0f32; LANES];
        // SAFETY: the caller's.
        unsafe { x.mul(V::splat(self.factor)).round().store(lanes.as_mut_ptr()) };
        lanes.map(|x| x as i8)
    }
}
