//! Sixteen lanes in two AVX2 registers.

#![allow(clippy::wildcard_imports)]

use super::{F32x16, Kernel, LANES};
use std::arch::x86_64::*;

/// Two 256-bit registers: lanes 0 to 7 and 8 to 15. With `VNNI`, products of bytes are one instruction.
#[derive(Clone, Copy, Debug)]
pub struct Avx2<const VNNI: bool>(__m256, __m256);

/// Runs a kernel compiled for AVX2.
///
/// # Safety
/// The machine has `Isa::Avx2`, and the kernel's own demands hold.
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
pub unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller's.
    unsafe { kernel.run::<Avx2<false>>() }
}

/// Runs a kernel compiled for AVX2 and AVX-VNNI.
///
/// # Safety
/// The machine has `Isa::Avx2Vnni`, and the kernel's own demands hold.
#[target_feature(enable = "avx2,fma,f16c,popcnt,avxvnni")]
pub unsafe fn run_vnni<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller's.
    unsafe { kernel.run::<Avx2<true>>() }
}

macro_rules! binary {
    ($name:ident, $intrinsic:ident) => {
        #[inline(always)]
        unsafe fn $name(self, b: Self) -> Self {
            // SAFETY: the trait's contract.
            unsafe { Self($intrinsic(self.0, b.0), $intrinsic(self.1, b.1)) }
        }
    };
}

#[inline(always)]
unsafe fn widen_bf16(x: __m128i) -> __m256 {
    // SAFETY: the trait's contract.
    unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(x))) }
}

#[inline(always)]
unsafe fn round_bf16(x: __m256) -> __m256i {
    // SAFETY: the trait's contract.
    unsafe {
        let bits = _mm256_castps_si256(x);
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(x, x));
        let kept = _mm256_or_si256(bits, _mm256_set1_epi32(0x40_0000));
        _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, kept, nan))
    }
}

#[inline(always)]
unsafe fn transpose8(r: [__m256; 8]) -> [__m256; 8] {
    // SAFETY: the trait's contract.
    unsafe {
        let mut a = r;
        for i in (0..8).step_by(2) {
            a[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
            a[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
        }
        let mut b = a;
        for g in 0..2 {
            for h in 0..2 {
                let (low, high) = (a[4 * g + h], a[4 * g + 2 + h]);
                b[4 * g + 2 * h] = _mm256_shuffle_ps::<0x44>(low, high);
                b[4 * g + 2 * h + 1] = _mm256_shuffle_ps::<0xee>(low, high);
            }
        }
        let mut out = b;
        for c in 0..4 {
            out[c] = _mm256_permute2f128_ps::<0x20>(b[c], b[4 + c]);
            out[4 + c] = _mm256_permute2f128_ps::<0x31>(b[c], b[4 + c]);
        }
        out
    }
}

impl<const VNNI: bool> F32x16 for Avx2<VNNI> {
    const TILE_ROWS: usize = 6;
    type Int = [__m256i; 2];
    type Bytes = [__m256i; 2];
    const START: i32 = if VNNI { 128 } else { 0 };

    #[inline(always)]
    unsafe fn int(x: i32) -> [__m256i; 2] {
        // SAFETY: the trait's contract.
        unsafe { [_mm256_set1_epi32(x), _mm256_set1_epi32(x)] }
    }
    #[inline(always)]
    unsafe fn from_int(x: [__m256i; 2]) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm256_cvtepi32_ps(x[0]), _mm256_cvtepi32_ps(x[1])) }
    }
    #[inline(always)]
    unsafe fn load_bytes(p: *const u8) -> [__m256i; 2] {
        // SAFETY: the trait's contract.
        unsafe { [_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(32).cast())] }
    }
    #[inline(always)]
    unsafe fn low_nibbles(b: [__m256i; 2]) -> [__m256i; 2] {
        // SAFETY: the trait's contract.
        unsafe {
            let mask = _mm256_set1_epi8(15);
            [_mm256_and_si256(b[0], mask), _mm256_and_si256(b[1], mask)]
        }
    }
    #[inline(always)]
    unsafe fn high_nibbles(b: [__m256i; 2]) -> [__m256i; 2] {
        // SAFETY: the trait's contract.
        unsafe {
            let mask = _mm256_set1_epi8(15);
            [
                _mm256_and_si256(_mm256_srli_epi16::<4>(b[0]), mask),
                _mm256_and_si256(_mm256_srli_epi16::<4>(b[1]), mask),
            ]
        }
    }
    #[inline(always)]
    unsafe fn dot(sum: [__m256i; 2], b: [__m256i; 2], x: i32) -> [__m256i; 2] {
        // SAFETY: the trait's contract. Two products are at most 2 * 63 * 127, which 16 bits hold.
        unsafe {
            let (x, ones) = (_mm256_set1_epi32(x), _mm256_set1_epi16(1));
            if VNNI {
                return [_mm256_dpbusd_avx_epi32(sum[0], b[0], x), _mm256_dpbusd_avx_epi32(sum[1], b[1], x)];
            }
            [
                _mm256_add_epi32(sum[0], _mm256_madd_epi16(_mm256_maddubs_epi16(b[0], x), ones)),
                _mm256_add_epi32(sum[1], _mm256_madd_epi16(_mm256_maddubs_epi16(b[1], x), ones)),
            ]
        }
    }
    #[inline(always)]
    unsafe fn dot_wide(sum: [__m256i; 2], b: [__m256i; 2], x: i32) -> [__m256i; 2] {
        // SAFETY: the trait's contract. The sign of `b - 128` moves to `x`, so that two products are at most
        // 2 * 128 * 127, which 16 bits hold.
        unsafe {
            if VNNI {
                return Self::dot(sum, b, x);
            }
            let (x, ones, half) = (_mm256_set1_epi32(x), _mm256_set1_epi16(1), _mm256_set1_epi8(-128));
            let (low, high) = (_mm256_xor_si256(b[0], half), _mm256_xor_si256(b[1], half));
            let low_products = _mm256_maddubs_epi16(_mm256_abs_epi8(low), _mm256_sign_epi8(x, low));
            let high_products = _mm256_maddubs_epi16(_mm256_abs_epi8(high), _mm256_sign_epi8(x, high));
            [
                _mm256_add_epi32(sum[0], _mm256_madd_epi16(low_products, ones)),
                _mm256_add_epi32(sum[1], _mm256_madd_epi16(high_products, ones)),
            ]
        }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the trait's contract, here and below.
        let v = unsafe { _mm256_set1_ps(x) };
        Self(v, v)
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the trait's contract.
        unsafe {
            _mm256_storeu_ps(p, self.0);
            _mm256_storeu_ps(p.add(8), self.1);
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(widen_bf16(_mm_loadu_si128(p.cast())), widen_bf16(_mm_loadu_si128(p.add(8).cast()))) }
    }
    #[inline(always)]
    unsafe fn store_bf16(self, p: *mut u16) {
        // SAFETY: the trait's contract.
        unsafe {
            let packed = _mm256_packus_epi32(round_bf16(self.0), round_bf16(self.1));
            _mm256_storeu_si256(p.cast(), _mm256_permute4x64_epi64::<0xd8>(packed));
        }
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u16) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            Self(
                _mm256_cvtph_ps(_mm_loadu_si128(p.cast())),
                _mm256_cvtph_ps(_mm_loadu_si128(p.add(8).cast())),
            )
        }
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16) {
        // SAFETY: the trait's contract.
        unsafe {
            _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0));
            _mm_storeu_si128(p.add(8).cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.1));
        }
    }
    #[inline(always)]
    unsafe fn load_bf16_pairs(p: *const u16) -> [Self; 2] {
        // SAFETY: the trait's contract.
        unsafe {
            let mask = _mm256_set1_epi32(0xffff_0000_u32.cast_signed());
            let (a, b) = (_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(16).cast()));
            let first = (_mm256_slli_epi32::<16>(a), _mm256_slli_epi32::<16>(b));
            let second = (_mm256_and_si256(a, mask), _mm256_and_si256(b, mask));
            [
                Self(_mm256_castsi256_ps(first.0), _mm256_castsi256_ps(first.1)),
                Self(_mm256_castsi256_ps(second.0), _mm256_castsi256_ps(second.1)),
            ]
        }
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const i8) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            let bytes = _mm_loadu_si128(p.cast());
            let high = _mm_unpackhi_epi64(bytes, bytes);
            Self(
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(high)),
            )
        }
    }
    binary!(add, _mm256_add_ps);
    binary!(sub, _mm256_sub_ps);
    binary!(mul, _mm256_mul_ps);
    binary!(div, _mm256_div_ps);
    binary!(max, _mm256_max_ps);
    binary!(min, _mm256_min_ps);
    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm256_fmadd_ps(self.0, b.0, c.0), _mm256_fmadd_ps(self.1, b.1, c.1)) }
    }
    #[inline(always)]
    unsafe fn round(self) -> Self {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        // SAFETY: the trait's contract.
        unsafe { Self(_mm256_round_ps::<NEAREST>(self.0), _mm256_round_ps::<NEAREST>(self.1)) }
    }
    #[inline(always)]
    unsafe fn pow2(self) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            let bias = _mm256_set1_epi32(127);
            let low = _mm256_slli_epi32::<23>(_mm256_add_epi32(_mm256_cvttps_epi32(self.0), bias));
            let high = _mm256_slli_epi32::<23>(_mm256_add_epi32(_mm256_cvttps_epi32(self.1), bias));
            Self(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high))
        }
    }
    #[inline(always)]
    unsafe fn select(self, first: usize, end: usize, other: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            let first = _mm256_set1_epi32(first as i32 - 1);
            let end = _mm256_set1_epi32(end as i32);
            let low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let high = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);
            let in_low = _mm256_and_si256(_mm256_cmpgt_epi32(low, first), _mm256_cmpgt_epi32(end, low));
            let in_high = _mm256_and_si256(_mm256_cmpgt_epi32(high, first), _mm256_cmpgt_epi32(end, high));
            Self(
                _mm256_blendv_ps(other.0, self.0, _mm256_castsi256_ps(in_low)),
                _mm256_blendv_ps(other.1, self.1, _mm256_castsi256_ps(in_high)),
            )
        }
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: the trait's contract.
        unsafe {
            let v = _mm256_add_ps(self.0, self.1);
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps::<1>(v, v)))
        }
    }
    #[inline(always)]
    unsafe fn greatest(self) -> f32 {
        // SAFETY: the trait's contract.
        unsafe {
            let v = _mm256_max_ps(self.0, self.1);
            let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_max_ss(v, _mm_shuffle_ps::<1>(v, v)))
        }
    }
    #[inline(always)]
    unsafe fn greater(self, b: Self) -> u32 {
        // SAFETY: the trait's contract.
        unsafe {
            let low = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(self.0, b.0)).cast_unsigned();
            let high = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(self.1, b.1)).cast_unsigned();
            low | high << 8
        }
    }
    #[inline(always)]
    unsafe fn unordered(self) -> u32 {
        // SAFETY: the trait's contract.
        unsafe {
            let low = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_UNORD_Q>(self.0, self.0)).cast_unsigned();
            let high = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_UNORD_Q>(self.1, self.1)).cast_unsigned();
            low | high << 8
        }
    }
    #[inline(always)]
    unsafe fn at_least(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            let low = _mm256_cmp_ps::<_CMP_GE_OQ>(self.0, b.0);
            let high = _mm256_cmp_ps::<_CMP_GE_OQ>(self.1, b.1);
            Self(_mm256_and_ps(low, self.0), _mm256_and_ps(high, self.1))
        }
    }
    #[inline(always)]
    unsafe fn transpose(rows: &mut [Self; LANES]) {
        // SAFETY: the trait's contract.
        unsafe {
            let zero = [_mm256_setzero_ps(); 8];
            let mut parts = [[zero; 2]; 2];
            for (half, parts) in parts.iter_mut().enumerate() {
                for i in 0..8 {
                    parts[0][i] = rows[8 * half + i].0;
                    parts[1][i] = rows[8 * half + i].1;
                }
                *parts = [transpose8(parts[0]), transpose8(parts[1])];
            }
            for i in 0..8 {
                rows[i] = Self(parts[0][0][i], parts[1][0][i]);
                rows[8 + i] = Self(parts[0][1][i], parts[1][1][i]);
            }
        }
    }
}
