//! How a layer's KV cache lies in memory: `[num_blocks, 2, kv_heads, block_size, row]`, contiguous.

use crate::DType;
use crate::simd::{F32x16, LANES, Lane};
use std::marker::PhantomData;

/// What the rows of a cache hold: one head's key or value of one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheType {
    /// Floats.
    Float(DType),
    /// Signed bytes, then a float32 that they are multiplied by.
    Int8,
}

impl CacheType {
    /// Bytes of a row.
    pub const fn row_bytes(self, head_dim: usize) -> usize {
        match self {
            Self::Float(dtype) => head_dim * dtype.size(),
            Self::Int8 => head_dim + size_of::<f32>(),
        }
    }
}

/// How rows of one type are read.
pub trait Row {
    /// `n` elements of a row of `dim` from index `start` on, the other lanes zero.
    ///
    /// # Safety
    /// They are there, and the machine has V's instruction set.
    unsafe fn load<V: F32x16>(row: *const u8, dim: usize, start: usize, n: usize) -> V;
}

/// Rows of floats.
pub struct Floats<T>(PhantomData<T>);

impl<T: Lane> Row for Floats<T> {
    #[inline(always)]
    unsafe fn load<V: F32x16>(row: *const u8, _dim: usize, start: usize, n: usize) -> V {
        // SAFETY: the caller's.
        unsafe { V::load_some(row.cast::<T>().add(start), n) }
    }
}

/// Rows of [`CacheType::Int8`].
pub struct ScaledBytes;

impl Row for ScaledBytes {
    #[inline(always)]
    unsafe fn load<V: F32x16>(row: *const u8, dim: usize, start: usize, n: usize) -> V {
        let from = row.cast::<i8>().wrapping_add(start);
        // SAFETY: the caller's; the copy stays within both arrays.
        unsafe {
            let bytes = if n == LANES {
                V::load_i8(from)
            } else {
                let mut all = [0i8; LANES];
                std::ptr::copy_nonoverlapping(from, all.as_mut_ptr(), n);
                V::load_i8(all.as_ptr())
            };
            bytes.mul(V::splat(row.add(dim).cast::<f32>().read_unaligned()))
        }
    }
}
