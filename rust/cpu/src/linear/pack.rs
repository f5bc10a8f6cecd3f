//! Weights in the order in which the kernels read them.

use crate::buffer::Buffer;
use crate::dtype::with_element;
use crate::pool::AssumeSync;
use crate::simd::LANES;
use crate::{DType, Pool};

/// A weight to pack: `[n, k]`, row-major, contiguous.
#[derive(Clone, Copy, Debug)]
pub struct WeightRef {
    /// The first element.
    pub data: *const u8,
    /// Its type.
    pub dtype: DType,
    /// Output features.
    pub n: usize,
    /// Input features.
    pub k: usize,
}

/// A weight as panels of 16 output columns, with its bias.
///
/// f32 and f16: `[panel][k][16]`. bf16: `[panel][k / 2][16][2]`, so that one load and two cheap operations give two
/// steps. Columns beyond `n` and steps beyond `k` are zero.
#[derive(Debug)]
pub struct PackedWeight {
    panels: Buffer,
    bias: Vec<f32>,
    dtype: DType,
    n: usize,
    k: usize,
}

/// Steps that a kernel takes at once.
pub(super) const fn group(dtype: DType) -> usize {
    match dtype {
        DType::Bf16 => 2,
        DType::F32 | DType::F16 => 1,
    }
}

impl PackedWeight {
    /// Copies a weight into panels; the original is not needed afterwards.
    ///
    /// # Safety
    /// `w.data` points to `n * k` elements.
    ///
    /// # Panics
    /// When a bias is given whose length is not `w.n`.
    pub unsafe fn pack(pool: &Pool, w: WeightRef, bias: Option<&[f32]>) -> Self {
        assert!(bias.is_none_or(|b| b.len() == w.n), "a bias has one element for each output feature");
        let group = group(w.dtype);
        let depth = w.k.next_multiple_of(group);
        let panels = w.n.div_ceil(LANES);
        let mut buffer = Buffer::zeroed(panels * LANES * depth * w.dtype.size());
        let source = AssumeSync(w.data);
        let target = AssumeSync(buffer.as_mut_ptr());
        pool.run(panels, |panel, _| {
            let columns = LANES.min(w.n - panel * LANES);
            // SAFETY: the source is as the caller promised; each chunk writes its own panel.
            with_element!(w.dtype, T => unsafe {
                let from = source.get().cast::<T>().add(panel * LANES * w.k);
                let to = target.get().cast::<T>().add(panel * LANES * depth);
                for k in 0..w.k {
                    for column in 0..columns {
                        let place = (k / group * LANES + column) * group + k % group;
                        *to.add(place) = from.add(column * w.k + k).read_unaligned();
                    }
                }
            });
        });
        let mut padded = vec![0.0; panels * LANES];
        padded[..w.n].copy_from_slice(bias.unwrap_or(&vec![0.0; w.n]));
        Self { panels: buffer, bias: padded, dtype: w.dtype, n: w.n, k: w.k }
    }

    /// Output features.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Input features.
    pub fn k(&self) -> usize {
        self.k
    }

    /// The type in which the weight is held.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Bytes held.
    pub fn size_bytes(&self) -> usize {
        self.panels.len() + self.bias.len() * size_of::<f32>()
    }

    pub(super) fn padded_k(&self) -> usize {
        self.k.next_multiple_of(group(self.dtype))
    }

    pub(super) fn panels(&self) -> usize {
        self.n.div_ceil(LANES)
    }

    pub(super) fn panel(&self, panel: usize) -> *const u8 {
        debug_assert!(panel < self.panels());
        self.panels.as_ptr().wrapping_add(panel * LANES * self.padded_k() * self.dtype.size())
    }

    pub(super) fn panel_bias(&self, panel: usize) -> *const f32 {
        self.bias[panel * LANES..].as_ptr()
    }
}
