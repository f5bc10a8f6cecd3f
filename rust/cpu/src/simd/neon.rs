//! Sixteen lanes in four NEON registers.

#![allow(clippy::wildcard_imports)]

use super::{F32x16, Kernel, LANES};
use std::arch::aarch64::*;
use std::arch::asm;

/// Four 128-bit registers, lanes 0 to 3 first. With `DOT`, products of bytes are one instruction.
#[derive(Clone, Copy, Debug)]
pub struct Neon<const DOT: bool>([float32x4_t; 4]);

/// Runs a kernel compiled for NEON.
///
/// # Safety
/// The kernel's own demands hold.
#[target_feature(enable = "neon")]
pub unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller's.
    unsafe { kernel.run::<Neon<false>>() }
}

/// Runs a kernel compiled for NEON with products of bytes.
///
/// # Safety
/// The machine has `Isa::NeonDot`, and the kernel's own demands hold.
#[target_feature(enable = "neon,dotprod")]
pub unsafe fn run_dot<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller's.
    unsafe { kernel.run::<Neon<true>>() }
}

/// An array of what an expression gives for each register. Not closures: those might not be inlined.
macro_rules! each {
    ($i:ident => $x:expr) => {
        [
            {
                let $i = 0;
                $x
            },
            {
                let $i = 1;
                $x
            },
            {
                let $i = 2;
                $x
            },
            {
                let $i = 3;
                $x
            },
        ]
    };
}

macro_rules! binary {
    ($name:ident, $intrinsic:ident) => {
        #[inline(always)]
        unsafe fn $name(self, b: Self) -> Self {
            // SAFETY: the trait's contract.
            unsafe { Self(each!(i => $intrinsic(self.0[i], b.0[i]))) }
        }
    };
}

/// The lanes' numbers from `first` on.
#[inline(always)]
unsafe fn numbers(first: u32) -> uint32x4_t {
    // SAFETY: four integers are there.
    unsafe { vld1q_u32([first, first + 1, first + 2, first + 3].as_ptr()) }
}

/// A bit for each lane of the masks.
#[inline(always)]
unsafe fn bits(masks: [uint32x4_t; 4]) -> u32 {
    // SAFETY: the caller's.
    unsafe {
        let weights = vshlq_u32(vdupq_n_u32(1), vreinterpretq_s32_u32(numbers(0)));
        let [a, b, c, d] = each!(i => vaddvq_u32(vandq_u32(masks[i], weights)));
        a | b << 4 | c << 8 | d << 12
    }
}

/// `a > b ? a : b`.
#[inline(always)]
unsafe fn greater_of(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    // SAFETY: the caller's.
    unsafe { vbslq_f32(vcgtq_f32(a, b), a, b) }
}

/// `a < b ? a : b`.
#[inline(always)]
unsafe fn less_of(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    // SAFETY: the caller's.
    unsafe { vbslq_f32(vcltq_f32(a, b), a, b) }
}

/// Four bf16 in the high halves.
#[inline(always)]
unsafe fn round_bf16(x: float32x4_t) -> uint32x4_t {
    // SAFETY: the caller's.
    unsafe {
        let bits = vreinterpretq_u32_f32(x);
        let odd = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
        let rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
        let kept = vorrq_u32(bits, vdupq_n_u32(0x40_0000));
        vbslq_u32(vceqq_f32(x, x), rounded, kept)
    }
}

/// Widens; the intrinsic needs a type that stable Rust does not have.
#[inline(always)]
unsafe fn widen_f16(x: uint16x4_t) -> float32x4_t {
    // SAFETY: the caller's.
    unsafe {
        let out: float32x4_t;
        asm!(
            "fcvtl {out:v}.4s, {x:v}.4h",
            out = out(vreg) out,
            x = in(vreg) x,
            options(pure, nomem, nostack, preserves_flags),
        );
        out
    }
}

/// Rounds to nearest, ties to even.
#[inline(always)]
unsafe fn narrow_f16(x: float32x4_t) -> uint16x4_t {
    // SAFETY: the caller's.
    unsafe {
        let out: uint16x4_t;
        asm!(
            "fcvtn {out:v}.4h, {x:v}.4s",
            out = out(vreg) out,
            x = in(vreg) x,
            options(pure, nomem, nostack, preserves_flags),
        );
        out
    }
}

/// In each lane `sum + b . x`: four signed bytes times four, none of those of `x` -128.
///
/// # Safety
/// With `DOT`, the machine has `Isa::NeonDot`.
#[inline(always)]
unsafe fn dot<const DOT: bool>(sum: int32x4_t, b: int8x16_t, x: int8x16_t) -> int32x4_t {
    // SAFETY: the caller's.
    unsafe {
        if DOT {
            let mut sum = sum;
            asm!(
                "sdot {sum:v}.4s, {b:v}.16b, {x:v}.16b",
                sum = inout(vreg) sum,
                b = in(vreg) b,
                x = in(vreg) x,
                options(pure, nomem, nostack, preserves_flags),
            );
            return sum;
        }
        // A product is at most 128 * 127, which 16 bits hold.
        let low = vpaddlq_s16(vmull_s8(vget_low_s8(b), vget_low_s8(x)));
        let high = vpaddlq_s16(vmull_high_s8(b, x));
        vaddq_s32(sum, vpaddq_s32(low, high))
    }
}

#[inline(always)]
unsafe fn transpose4(r: [float32x4_t; 4]) -> [float32x4_t; 4] {
    // SAFETY: the caller's.
    unsafe {
        // The even lanes of two rows, and the odd ones.
        let low = [vtrn1q_f32(r[0], r[1]), vtrn2q_f32(r[0], r[1])];
        let high = [vtrn1q_f32(r[2], r[3]), vtrn2q_f32(r[2], r[3])];
        each!(i => {
            let (a, b) = (vreinterpretq_f64_f32(low[i % 2]), vreinterpretq_f64_f32(high[i % 2]));
            vreinterpretq_f32_f64(if i < 2 { vtrn1q_f64(a, b) } else { vtrn2q_f64(a, b) })
        })
    }
}

impl<const DOT: bool> F32x16 for Neon<DOT> {
    const TILE_ROWS: usize = 6;
    type Int = [int32x4_t; 4];
    type Bytes = [uint8x16_t; 4];
    const START: i32 = 0;

    #[inline(always)]
    unsafe fn int(x: i32) -> Self::Int {
        // SAFETY: the trait's contract.
        unsafe { [vdupq_n_s32(x); 4] }
    }
    #[inline(always)]
    unsafe fn from_int(x: Self::Int) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(each!(i => vcvtq_f32_s32(x[i]))) }
    }
    #[inline(always)]
    unsafe fn load_bytes(p: *const u8) -> Self::Bytes {
        // SAFETY: the trait's contract.
        unsafe { each!(i => vld1q_u8(p.add(16 * i))) }
    }
    #[inline(always)]
    unsafe fn low_nibbles(b: Self::Bytes) -> Self::Bytes {
        // SAFETY: the trait's contract.
        unsafe { each!(i => vandq_u8(b[i], vdupq_n_u8(15))) }
    }
    #[inline(always)]
    unsafe fn high_nibbles(b: Self::Bytes) -> Self::Bytes {
        // SAFETY: the trait's contract.
        unsafe { each!(i => vshrq_n_u8::<4>(b[i])) }
    }
    #[inline(always)]
    unsafe fn dot(sum: Self::Int, b: Self::Bytes, x: i32) -> Self::Int {
        // SAFETY: the trait's contract.
        unsafe {
            let x = vreinterpretq_s8_s32(vdupq_n_s32(x));
            each!(i => dot::<DOT>(sum[i], vreinterpretq_s8_u8(b[i]), x))
        }
    }
    #[inline(always)]
    unsafe fn dot_wide(sum: Self::Int, b: Self::Bytes, x: i32) -> Self::Int {
        // SAFETY: the trait's contract.
        unsafe {
            // As signed bytes these are `b - 128`.
            Self::dot(sum, each!(i => veorq_u8(b[i], vdupq_n_u8(0x80))), x)
        }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self([vdupq_n_f32(x); 4]) }
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(each!(i => vld1q_f32(p.add(4 * i)))) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the trait's contract.
        unsafe {
            each!(i => vst1q_f32(p.add(4 * i), self.0[i]));
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            Self(each!(i => vreinterpretq_f32_u32(vshlq_n_u32::<16>(vmovl_u16(vld1_u16(p.add(4 * i)))))))
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(self, p: *mut u16) {
        // SAFETY: the trait's contract.
        unsafe {
            each!(i => vst1_u16(p.add(4 * i), vshrn_n_u32::<16>(round_bf16(self.0[i]))));
        }
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u16) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(each!(i => widen_f16(vld1_u16(p.add(4 * i))))) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16) {
        // SAFETY: the trait's contract.
        unsafe {
            each!(i => vst1_u16(p.add(4 * i), narrow_f16(self.0[i])));
        }
    }
    #[inline(always)]
    unsafe fn load_bf16_pairs(p: *const u16) -> [Self; 2] {
        // SAFETY: the trait's contract.
        unsafe {
            let pairs = each!(i => vreinterpretq_u32_u16(vld1q_u16(p.add(8 * i))));
            let first = each!(i => vreinterpretq_f32_u32(vshlq_n_u32::<16>(pairs[i])));
            let second = each!(i => vreinterpretq_f32_u32(vandq_u32(pairs[i], vdupq_n_u32(0xffff_0000))));
            [Self(first), Self(second)]
        }
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const i8) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            let bytes = vld1q_s8(p);
            let halves = [vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes)];
            Self(each!(i => {
                let half = halves[i / 2];
                vcvtq_f32_s32(if i % 2 == 0 { vmovl_s16(vget_low_s16(half)) } else { vmovl_high_s16(half) })
            }))
        }
    }
    binary!(add, vaddq_f32);
    binary!(sub, vsubq_f32);
    binary!(mul, vmulq_f32);
    binary!(div, vdivq_f32);
    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(each!(i => vfmaq_f32(c.0[i], self.0[i], b.0[i]))) }
    }
    binary!(max, greater_of);
    binary!(min, less_of);
    #[inline(always)]
    unsafe fn round(self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(each!(i => vrndnq_f32(self.0[i]))) }
    }
    #[inline(always)]
    unsafe fn pow2(self) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            Self(each!(i => {
                let n = vaddq_s32(vcvtq_s32_f32(self.0[i]), vdupq_n_s32(127));
                vreinterpretq_f32_s32(vshlq_n_s32::<23>(n))
            }))
        }
    }
    #[inline(always)]
    unsafe fn select(self, first: usize, end: usize, other: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            let (first, end) = (vdupq_n_u32(first.min(LANES) as u32), vdupq_n_u32(end.min(LANES) as u32));
            Self(each!(i => {
                let lanes = numbers(4 * i as u32);
                let inside = vandq_u32(vcgeq_u32(lanes, first), vcltq_u32(lanes, end));
                vbslq_f32(inside, self.0[i], other.0[i])
            }))
        }
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: the trait's contract.
        unsafe {
            let [a, b, c, d] = self.0;
            let four = vaddq_f32(vaddq_f32(a, c), vaddq_f32(b, d));
            vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)))
        }
    }
    #[inline(always)]
    unsafe fn greatest(self) -> f32 {
        // SAFETY: the trait's contract.
        unsafe {
            let [a, b, c, d] = self.0;
            let four = greater_of(greater_of(a, c), greater_of(b, d));
            let two = greater_of(four, vextq_f32::<2>(four, four));
            vgetq_lane_f32::<0>(greater_of(two, vextq_f32::<1>(two, two)))
        }
    }
    #[inline(always)]
    unsafe fn greater(self, b: Self) -> u32 {
        // SAFETY: the trait's contract.
        unsafe { bits(each!(i => vcgtq_f32(self.0[i], b.0[i]))) }
    }
    #[inline(always)]
    unsafe fn unordered(self) -> u32 {
        // SAFETY: the trait's contract.
        unsafe { bits(each!(i => vmvnq_u32(vceqq_f32(self.0[i], self.0[i])))) }
    }
    #[inline(always)]
    unsafe fn at_least(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            Self(each!(i => {
                let kept = vcgeq_f32(self.0[i], b.0[i]);
                vreinterpretq_f32_u32(vandq_u32(kept, vreinterpretq_u32_f32(self.0[i])))
            }))
        }
    }
    #[inline(always)]
    unsafe fn transpose(rows: &mut [Self; LANES]) {
        // SAFETY: the trait's contract.
        unsafe {
            let old = *rows;
            for i in 0..4 {
                for j in 0..4 {
                    let columns = transpose4(each!(r => old[4 * i + r].0[j]));
                    for (c, column) in columns.into_iter().enumerate() {
                        rows[4 * j + c].0[i] = column;
                    }
                }
            }
        }
    }
}
