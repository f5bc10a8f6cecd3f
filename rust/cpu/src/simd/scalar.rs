//! Portable lanes: an array. The reference for the others.

use super::{F32x16, LANES};
use crate::dtype::{Element, round_to_bf16};
use half::f16;

/// Sixteen lanes in an array.
#[derive(Clone, Copy, Debug)]
pub struct Scalar([f32; LANES]);

impl Scalar {
    #[inline(always)]
    fn map2(self, b: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Self(std::array::from_fn(|i| f(self.0[i], b.0[i])))
    }

    #[inline(always)]
    fn halve(self, f: impl Fn(f32, f32) -> f32) -> f32 {
        let mut lanes = self.0;
        let mut half = LANES / 2;
        while half > 0 {
            for i in 0..half {
                lanes[i] = f(lanes[i], lanes[i + half]);
            }
            half /= 2;
        }
        lanes[0]
    }
}

// SAFETY comments below: every pointer method has 16 valid elements by the trait's contract.
impl F32x16 for Scalar {
    const TILE_ROWS: usize = 4;
    type Int = [i32; LANES];
    type Bytes = [u8; 4 * LANES];
    const START: i32 = 128;

    #[inline(always)]
    unsafe fn int(x: i32) -> [i32; LANES] {
        [x; LANES]
    }
    #[inline(always)]
    unsafe fn from_int(x: [i32; LANES]) -> Self {
        Self(x.map(|x| x as f32))
    }
    #[inline(always)]
    unsafe fn load_bytes(p: *const u8) -> Self::Bytes {
        // SAFETY: the trait's contract.
        unsafe { p.cast::<Self::Bytes>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn low_nibbles(b: Self::Bytes) -> Self::Bytes {
        b.map(|b| b & 15)
    }
    #[inline(always)]
    unsafe fn high_nibbles(b: Self::Bytes) -> Self::Bytes {
        b.map(|b| b >> 4)
    }
    #[inline(always)]
    unsafe fn dot(sum: [i32; LANES], b: Self::Bytes, x: i32) -> [i32; LANES] {
        let x = x.to_le_bytes().map(|x| i32::from(x.cast_signed()));
        std::array::from_fn(|lane| sum[lane] + (0..4).map(|i| i32::from(b[4 * lane + i]) * x[i]).sum::<i32>())
    }
    #[inline(always)]
    unsafe fn dot_wide(sum: [i32; LANES], b: Self::Bytes, x: i32) -> [i32; LANES] {
        // SAFETY: the trait's contract.
        unsafe { Self::dot(sum, b, x) }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Self([x; LANES])
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: the trait's contract.
        Self(unsafe { p.cast::<[f32; LANES]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the trait's contract.
        unsafe { p.cast::<[f32; LANES]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> Self {
        // SAFETY: the trait's contract.
        let bits = unsafe { p.cast::<[u16; LANES]>().read_unaligned() };
        Self(bits.map(|b| f32::from_bits(u32::from(b) << 16)))
    }
    #[inline(always)]
    unsafe fn store_bf16(self, p: *mut u16) {
        // SAFETY: the trait's contract.
        unsafe { p.cast::<[u16; LANES]>().write_unaligned(self.0.map(round_to_bf16)) }
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u16) -> Self {
        // SAFETY: the trait's contract.
        let bits = unsafe { p.cast::<[u16; LANES]>().read_unaligned() };
        Self(bits.map(|b| f16::from_bits(b).to_f32()))
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16) {
        let bits = self.0.map(|x| <f16 as Element>::from_f32(x).to_bits());
        // SAFETY: the trait's contract.
        unsafe { p.cast::<[u16; LANES]>().write_unaligned(bits) }
    }
    #[inline(always)]
    unsafe fn load_bf16_pairs(p: *const u16) -> [Self; 2] {
        // SAFETY: the trait's contract: 32 elements.
        let bits = unsafe { p.cast::<[u16; 2 * LANES]>().read_unaligned() };
        [0, 1].map(|k| Self(std::array::from_fn(|i| f32::from_bits(u32::from(bits[2 * i + k]) << 16))))
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const i8) -> Self {
        // SAFETY: the trait's contract.
        Self(unsafe { p.cast::<[i8; LANES]>().read_unaligned() }.map(f32::from))
    }
    #[inline(always)]
    unsafe fn add(self, b: Self) -> Self {
        self.map2(b, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn sub(self, b: Self) -> Self {
        self.map2(b, |a, b| a - b)
    }
    #[inline(always)]
    unsafe fn mul(self, b: Self) -> Self {
        self.map2(b, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn div(self, b: Self) -> Self {
        self.map2(b, |a, b| a / b)
    }
    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i].mul_add(b.0[i], c.0[i])))
    }
    #[inline(always)]
    unsafe fn max(self, b: Self) -> Self {
        self.map2(b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn min(self, b: Self) -> Self {
        self.map2(b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    unsafe fn round(self) -> Self {
        Self(self.0.map(f32::round_ties_even))
    }
    #[inline(always)]
    unsafe fn pow2(self) -> Self {
        Self(self.0.map(|n| f32::from_bits(((n as i32).wrapping_add(127) as u32) << 23)))
    }
    #[inline(always)]
    unsafe fn select(self, first: usize, end: usize, other: Self) -> Self {
        Self(std::array::from_fn(|i| if (first..end).contains(&i) { self.0[i] } else { other.0[i] }))
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        self.halve(|a, b| a + b)
    }
    #[inline(always)]
    unsafe fn greatest(self) -> f32 {
        self.halve(|a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn greater(self, b: Self) -> u32 {
        (0..LANES).map(|i| u32::from(self.0[i] > b.0[i]) << i).sum()
    }
    #[inline(always)]
    unsafe fn unordered(self) -> u32 {
        (0..LANES).map(|i| u32::from(self.0[i].is_nan()) << i).sum()
    }
    #[inline(always)]
    unsafe fn at_least(self, b: Self) -> Self {
        self.map2(b, |a, b| if a >= b { a } else { 0.0 })
    }
    #[inline(always)]
    unsafe fn transpose(rows: &mut [Self; LANES]) {
        let old = *rows;
        *rows = std::array::from_fn(|i| Self(std::array::from_fn(|j| old[j].0[i])));
    }
}
