//! Numbers that are hard to add up, and matrices of them.

use half::{bf16, f16};
use octavo_cpu::{DType, MatMut, MatRef};

pub const TYPES: [DType; 3] = [DType::F32, DType::Bf16, DType::F16];

/// A linear congruential generator; its upper 24 bits.
pub struct Random(pub u32);

impl Random {
    pub fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 >> 8
    }

    /// From -1 up to 1.
    pub fn signed(&mut self) -> f32 {
        self.next() as f32 / 8_388_608.0 - 1.0
    }
}

/// Kinds of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Anything between -1 and 1.
    Plain,
    /// A little more than 1: every rounding of a sum is in play.
    Steady,
    /// `x, -x, y, -y, ..` near 1: sums cancel.
    Alternating,
    /// Of very different size.
    Wide,
    /// Subnormal, or nearly so.
    Tiny,
    /// Zeros of both signs.
    Zeros,
}

impl Fill {
    pub const ALL: [Self; 6] =
        [Self::Plain, Self::Steady, Self::Alternating, Self::Wide, Self::Tiny, Self::Zeros];

    /// `count` numbers that `dtype` holds.
    pub fn floats(self, count: usize, dtype: DType, seed: u32) -> Vec<f32> {
        let mut random = Random(seed.wrapping_mul(747_796_405).wrapping_add(1));
        let mut last = 0.0;
        let number = |i: usize| {
            let x = random.signed();
            let (spread, least) =
                if dtype == DType::F16 { (6.0, 2f32.powi(-15)) } else { (20.0, 2f32.powi(-127)) };
            let x = match self {
                Self::Plain => x,
                Self::Steady => 1.0 + x.abs() / 64.0,
                Self::Alternating if i % 2 == 1 => -last,
                Self::Alternating => 1.0 + x,
                Self::Wide => x.signum() * (random.signed() * spread).exp2(),
                Self::Tiny => x * least,
                Self::Zeros => 0.0f32.copysign(x),
            };
            last = x;
            x
        };
        let rounded = bytes_of(&(0..count).map(number).collect::<Vec<_>>(), dtype);
        floats_of(&rounded, dtype)
    }
}

pub fn bytes_of(values: &[f32], dtype: DType) -> Vec<u8> {
    match dtype {
        DType::F32 => values.iter().flat_map(|x| x.to_ne_bytes()).collect(),
        DType::Bf16 => values.iter().flat_map(|&x| bf16::from_f32(x).to_ne_bytes()).collect(),
        DType::F16 => values.iter().flat_map(|&x| f16::from_f32(x).to_ne_bytes()).collect(),
    }
}

pub fn floats_of(bytes: &[u8], dtype: DType) -> Vec<f32> {
    let pairs = || bytes.as_chunks::<2>().0.iter();
    match dtype {
        DType::F32 => bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_ne_bytes(b)).collect(),
        DType::Bf16 => pairs().map(|&b| bf16::from_ne_bytes(b).to_f32()).collect(),
        DType::F16 => pairs().map(|&b| f16::from_ne_bytes(b).to_f32()).collect(),
    }
}

/// Rows of `stride` elements.
pub fn view(bytes: &[u8], dtype: DType, stride: usize) -> MatRef {
    MatRef { data: bytes.as_ptr(), dtype, rows: bytes.len() / (stride * dtype.size()), stride }
}

/// Rows of `stride` elements, to write.
pub fn view_mut(bytes: &mut [u8], dtype: DType, stride: usize) -> MatMut {
    MatMut { data: bytes.as_mut_ptr(), dtype, rows: bytes.len() / (stride * dtype.size()), stride }
}
