//! Sixteen lanes in one AVX-512 register.

#![allow(clippy::wildcard_imports)]

use super::{F32x16, Kernel, LANES};
use std::arch::x86_64::*;

/// One 512-bit register.
#[derive(Clone, Copy, Debug)]
pub struct Avx512(__m512);

/// Runs a kernel compiled for AVX-512.
///
/// # Safety
/// The machine has `Isa::Avx512`, and the kernel's own demands hold.
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c,bmi1,bmi2,popcnt,lzcnt"
)]
pub unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller's.
    unsafe { kernel.run::<Avx512>() }
}

#[inline(always)]
fn lanes(first: usize, end: usize) -> u16 {
    let below = |n: usize| ((1u32 << n.min(LANES)) - 1) as u16;
    below(end) & !below(first)
}

impl F32x16 for Avx512 {
    const TILE_ROWS: usize = 12;
    type Int = __m512i;
    type Bytes = __m512i;
    const START: i32 = 128;

    #[inline(always)]
    unsafe fn int(x: i32) -> __m512i {
        // SAFETY: the trait's contract.
        unsafe { _mm512_set1_epi32(x) }
    }
    #[inline(always)]
    unsafe fn from_int(x: __m512i) -> Self {
        // SAFETY: the trait's contract.
        Self(unsafe { _mm512_cvtepi32_ps(x) })
    }
    #[inline(always)]
    unsafe fn load_bytes(p: *const u8) -> __m512i {
        // SAFETY: the trait's contract.
        unsafe { _mm512_loadu_si512(p.cast()) }
    }
    #[inline(always)]
    unsafe fn low_nibbles(b: __m512i) -> __m512i {
        // SAFETY: the trait's contract.
        unsafe { _mm512_and_si512(b, _mm512_set1_epi8(15)) }
    }
    #[inline(always)]
    unsafe fn high_nibbles(b: __m512i) -> __m512i {
        // SAFETY: the trait's contract.
        unsafe { _mm512_and_si512(_mm512_srli_epi16::<4>(b), _mm512_set1_epi8(15)) }
    }
    #[inline(always)]
    unsafe fn dot(sum: __m512i, b: __m512i, x: i32) -> __m512i {
        // SAFETY: the trait's contract.
        unsafe { _mm512_dpbusd_epi32(sum, b, _mm512_set1_epi32(x)) }
    }
    #[inline(always)]
    unsafe fn dot_wide(sum: __m512i, b: __m512i, x: i32) -> __m512i {
        // SAFETY: the trait's contract.
        unsafe { Self::dot(sum, b, x) }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the trait's contract, here and below.
        Self(unsafe { _mm512_set1_ps(x) })
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: the trait's contract.
        Self(unsafe { _mm512_loadu_ps(p) })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the trait's contract.
        unsafe { _mm512_storeu_ps(p, self.0) }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> Self {
        // SAFETY: the trait's contract.
        Self(unsafe {
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()))))
        })
    }
    #[inline(always)]
    unsafe fn store_bf16(self, p: *mut u16) {
        // SAFETY: the trait's contract.
        unsafe {
            let bits = _mm512_castps_si512(self.0);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self.0, self.0);
            let kept = _mm512_or_si512(bits, _mm512_set1_epi32(0x40_0000));
            let high = _mm512_srli_epi32::<16>(_mm512_mask_mov_epi32(rounded, nan, kept));
            _mm256_storeu_si256(p.cast(), _mm512_cvtepi32_epi16(high));
        }
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u16) -> Self {
        // SAFETY: the trait's contract.
        Self(unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) })
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16) {
        // SAFETY: the trait's contract.
        unsafe { _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0)) }
    }
    #[inline(always)]
    unsafe fn load_bf16_pairs(p: *const u16) -> [Self; 2] {
        // SAFETY: the trait's contract.
        unsafe {
            let pairs = _mm512_loadu_si512(p.cast());
            let first = _mm512_slli_epi32::<16>(pairs);
            let second = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff_0000_u32.cast_signed()));
            [Self(_mm512_castsi512_ps(first)), Self(_mm512_castsi512_ps(second))]
        }
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const i8) -> Self {
        // SAFETY: the trait's contract.
        Self(unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast()))) })
    }
    #[inline(always)]
    unsafe fn add(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        Self(unsafe { _mm512_add_ps(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn sub(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        Self(unsafe { _mm512_sub_ps(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn mul(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        Self(unsafe { _mm512_mul_ps(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn div(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        Self(unsafe { _mm512_div_ps(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        // SAFETY: the trait's contract.
        Self(unsafe { _mm512_fmadd_ps(self.0, b.0, c.0) })
    }
    #[inline(always)]
    unsafe fn max(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        Self(unsafe { _mm512_max_ps(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn min(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        Self(unsafe { _mm512_min_ps(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn round(self) -> Self {
        // SAFETY: the trait's contract.
        Self(unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0) })
    }
    #[inline(always)]
    unsafe fn pow2(self) -> Self {
        // SAFETY: the trait's contract.
        Self(unsafe {
            let n = _mm512_add_epi32(_mm512_cvttps_epi32(self.0), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(n))
        })
    }
    #[inline(always)]
    unsafe fn select(self, first: usize, end: usize, other: Self) -> Self {
        // SAFETY: the trait's contract.
        Self(unsafe { _mm512_mask_mov_ps(other.0, lanes(first, end), self.0) })
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: the trait's contract.
        unsafe {
            let v = _mm256_add_ps(_mm512_castps512_ps256(self.0), _mm512_extractf32x8_ps::<1>(self.0));
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps::<1>(v, v)))
        }
    }
    #[inline(always)]
    unsafe fn greatest(self) -> f32 {
        // SAFETY: the trait's contract.
        unsafe {
            let v = _mm256_max_ps(_mm512_castps512_ps256(self.0), _mm512_extractf32x8_ps::<1>(self.0));
            let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_max_ss(v, _mm_shuffle_ps::<1>(v, v)))
        }
    }
    #[inline(always)]
    unsafe fn greater(self, b: Self) -> u32 {
        // SAFETY: the trait's contract.
        u32::from(unsafe { _mm512_cmp_ps_mask::<_CMP_GT_OQ>(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn unordered(self) -> u32 {
        // SAFETY: the trait's contract.
        u32::from(unsafe { _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self.0, self.0) })
    }
    #[inline(always)]
    unsafe fn at_least(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        Self(unsafe { _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_GE_OQ>(self.0, b.0), self.0) })
    }
    #[inline(always)]
    unsafe fn transpose(rows: &mut [Self; LANES]) {
        // SAFETY: the trait's contract.
        unsafe {
            let zero = _mm512_setzero_ps();
            let mut a = [zero; LANES];
            for i in (0..LANES).step_by(2) {
                a[i] = _mm512_unpacklo_ps(rows[i].0, rows[i + 1].0);
                a[i + 1] = _mm512_unpackhi_ps(rows[i].0, rows[i + 1].0);
            }
            // After this b[4 g + c] holds column c + 4 l of rows 4 g to 4 g + 3 in its 128-bit part l.
            let mut b = [zero; LANES];
            for g in 0..4 {
                for h in 0..2 {
                    let (low, high) = (_mm512_castps_pd(a[4 * g + h]), _mm512_castps_pd(a[4 * g + 2 + h]));
                    b[4 * g + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
                    b[4 * g + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
                }
            }
            for c in 0..4 {
                let low = _mm512_shuffle_f32x4::<0x44>(b[c], b[4 + c]);
                let low_high = _mm512_shuffle_f32x4::<0xee>(b[c], b[4 + c]);
                let high = _mm512_shuffle_f32x4::<0x44>(b[8 + c], b[12 + c]);
                let high_high = _mm512_shuffle_f32x4::<0xee>(b[8 + c], b[12 + c]);
                rows[c] = Self(_mm512_shuffle_f32x4::<0x88>(low, high));
                rows[4 + c] = Self(_mm512_shuffle_f32x4::<0xdd>(low, high));
                rows[8 + c] = Self(_mm512_shuffle_f32x4::<0x88>(low_high, high_high));
                rows[12 + c] = Self(_mm512_shuffle_f32x4::<0xdd>(low_high, high_high));
            }
        }
    }
}
