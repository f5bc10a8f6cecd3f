//! Sixteen `f32` lanes, on every instruction set.
//!
//! A kernel is a [`Kernel`]: its `run` is generic over the vector and always inlined into an entry point that is
//! compiled for one instruction set ([`dispatch`]).

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod math;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

use crate::Isa;
use half::{bf16, f16};

pub use scalar::Scalar;

/// Lanes of a vector.
pub const LANES: usize = 16;

/// Sixteen `f32` lanes.
///
/// # Safety
/// Every method needs the instruction set of the implementing type, and every pointer method needs `LANES` (or `n`)
/// valid elements at the pointer, with no demand on alignment. `n` is at most `LANES`. Code reaches these methods
/// through [`dispatch`], which checks the former.
#[allow(clippy::missing_safety_doc, clippy::return_self_not_must_use)]
pub trait F32x16: Copy {
    /// Rows of the largest matrix tile of two vectors whose accumulators stay in registers.
    const TILE_ROWS: usize;

    /// Sixteen `i32` lanes.
    type Int: Copy;
    /// Sixteen lanes of four bytes.
    type Bytes: Copy;
    /// What [`F32x16::dot_wide`] counts bytes from: 0, or 128 where it takes 128 off by itself.
    const START: i32;

    /// All lanes `x`.
    unsafe fn int(x: i32) -> Self::Int;
    /// Exact up to 2^24.
    unsafe fn from_int(x: Self::Int) -> Self;
    /// Loads 64 bytes.
    unsafe fn load_bytes(p: *const u8) -> Self::Bytes;
    /// The low half of each byte.
    unsafe fn low_nibbles(b: Self::Bytes) -> Self::Bytes;
    /// The high half of each byte.
    unsafe fn high_nibbles(b: Self::Bytes) -> Self::Bytes;
    /// In each lane `sum + b . x`: four bytes from 0 to 63 times the four signed bytes of `x`, none of them -128.
    unsafe fn dot(sum: Self::Int, b: Self::Bytes, x: i32) -> Self::Int;
    /// The same for bytes `b - 128 + START` of any size.
    unsafe fn dot_wide(sum: Self::Int, b: Self::Bytes, x: i32) -> Self::Int;

    /// All lanes `x`.
    unsafe fn splat(x: f32) -> Self;
    /// All lanes zero.
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller's.
        unsafe { Self::splat(0.0) }
    }
    /// Loads 16.
    unsafe fn load(p: *const f32) -> Self;
    /// Stores 16.
    unsafe fn store(self, p: *mut f32);
    /// Loads 16 bf16.
    unsafe fn load_bf16(p: *const u16) -> Self;
    /// Stores 16 bf16, rounded to nearest even.
    unsafe fn store_bf16(self, p: *mut u16);
    /// Loads 16 f16.
    unsafe fn load_f16(p: *const u16) -> Self;
    /// Stores 16 f16, rounded to nearest even.
    unsafe fn store_f16(self, p: *mut u16);
    /// Loads 16 pairs of bf16: the first of each pair, and the second.
    unsafe fn load_bf16_pairs(p: *const u16) -> [Self; 2];
    /// Loads 16 signed bytes.
    unsafe fn load_i8(p: *const i8) -> Self;

    /// `self + b`.
    unsafe fn add(self, b: Self) -> Self;
    /// `self - b`.
    unsafe fn sub(self, b: Self) -> Self;
    /// `self * b`.
    unsafe fn mul(self, b: Self) -> Self;
    /// `self / b`.
    unsafe fn div(self, b: Self) -> Self;
    /// `self * b + c`, rounded once.
    unsafe fn fma(self, b: Self, c: Self) -> Self;
    /// `self > b ? self : b`: not-a-number in `b` wins.
    unsafe fn max(self, b: Self) -> Self;
    /// `self < b ? self : b`: not-a-number in `b` wins.
    unsafe fn min(self, b: Self) -> Self;
    /// The nearest integers, ties to even.
    unsafe fn round(self) -> Self;
    /// `2^self` where self is an integer from -126 to 127.
    unsafe fn pow2(self) -> Self;
    /// Lanes from `first` up to `end` of self, the others of `other`.
    unsafe fn select(self, first: usize, end: usize, other: Self) -> Self;
    /// The sum of the lanes: halves are added until one lane is left.
    unsafe fn sum(self) -> f32;
    /// The greatest lane.
    unsafe fn greatest(self) -> f32;
    /// A bit for each lane that is greater than `b`'s.
    unsafe fn greater(self, b: Self) -> u32;
    /// A bit for each lane that is not a number.
    unsafe fn unordered(self) -> u32;
    /// Lanes that are at least `b`'s, the others zero.
    unsafe fn at_least(self, b: Self) -> Self;
    /// Turns rows into columns.
    unsafe fn transpose(rows: &mut [Self; LANES]);

    /// Loads `n`, the other lanes zero.
    #[inline(always)]
    unsafe fn load_some<T: Lane>(p: *const T, n: usize) -> Self {
        // SAFETY: the caller's; the copy stays within both arrays.
        unsafe {
            if n == LANES {
                return T::load::<Self>(p);
            }
            let mut all = [T::from_f32(0.0); LANES];
            // As bytes, which need no alignment.
            std::ptr::copy_nonoverlapping(p.cast::<u8>(), all.as_mut_ptr().cast(), n * size_of::<T>());
            T::load::<Self>(all.as_ptr())
        }
    }

    /// Stores the first `n` lanes.
    #[inline(always)]
    unsafe fn store_some<T: Lane>(self, p: *mut T, n: usize) {
        // SAFETY: the caller's; the copy stays within both arrays.
        unsafe {
            if n == LANES {
                return T::store(self, p);
            }
            let mut all = [T::from_f32(0.0); LANES];
            T::store(self, all.as_mut_ptr());
            std::ptr::copy_nonoverlapping(all.as_ptr().cast::<u8>(), p.cast(), n * size_of::<T>());
        }
    }

    /// `e^self`, within 2 units in the last place from -87 to 88; arguments beyond are clamped to that range.
    #[inline(always)]
    unsafe fn exp(self) -> Self {
        // SAFETY: the caller's.
        unsafe { math::exp(self) }
    }
}

/// An element type that a vector loads and stores.
#[allow(clippy::missing_safety_doc)]
pub trait Lane: crate::dtype::Element {
    /// Loads 16 elements.
    ///
    /// # Safety
    /// As [`F32x16`].
    unsafe fn load<V: F32x16>(p: *const Self) -> V;
    /// Stores 16 elements.
    ///
    /// # Safety
    /// As [`F32x16`].
    unsafe fn store<V: F32x16>(v: V, p: *mut Self);
}

macro_rules! lane {
    ($t:ty, $load:ident, $store:ident) => {
        impl Lane for $t {
            #[inline(always)]
            unsafe fn load<V: F32x16>(p: *const Self) -> V {
                // SAFETY: the caller's; the bits are the same.
                unsafe { V::$load(p.cast()) }
            }
            #[inline(always)]
            unsafe fn store<V: F32x16>(v: V, p: *mut Self) {
                // SAFETY: the caller's; the bits are the same.
                unsafe { v.$store(p.cast()) }
            }
        }
    };
}
lane!(f32, load, store);
lane!(bf16, load_bf16, store_bf16);
lane!(f16, load_f16, store_f16);

/// A piece of work to compile for every instruction set.
pub trait Kernel {
    /// Whether it uses [`F32x16::dot`]; others need no code of their own for sets that differ in nothing else.
    const MULTIPLIES_BYTES: bool = false;
    /// What it returns.
    type Output;
    /// The work. Mark the implementation `#[inline(always)]`.
    ///
    /// # Safety
    /// The machine has the instruction set of `V`, and whatever the kernel itself asks for.
    unsafe fn run<V: F32x16>(self) -> Self::Output;
}

/// Runs the kernel on an instruction set.
///
/// # Safety
/// `isa` is one of [`Isa::available`], and the kernel's own demands hold.
#[inline(always)]
pub unsafe fn dispatch<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
    // SAFETY: the caller's.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::run(kernel),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2Vnni => {
                if const { K::MULTIPLIES_BYTES } {
                    avx2::run_vnni(kernel)
                } else {
                    avx2::run(kernel)
                }
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::run(kernel),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => neon::run(kernel),
            #[cfg(target_arch = "aarch64")]
            Isa::NeonDot => {
                if const { K::MULTIPLIES_BYTES } {
                    neon::run_dot(kernel)
                } else {
                    neon::run(kernel)
                }
            }
            _ => kernel.run::<Scalar>(),
        }
    }
}

#[cfg(test)]
mod tests;
