//! Views of matrices that someone else owns.

use crate::DType;

/// A row-major matrix to read. Rows are `stride` elements apart; elements of a row are adjacent.
#[derive(Clone, Copy, Debug)]
pub struct MatRef {
    /// The first element.
    pub data: *const u8,
    /// Its type.
    pub dtype: DType,
    /// Rows.
    pub rows: usize,
    /// Elements from one row to the next.
    pub stride: usize,
}

/// A row-major matrix to write.
#[derive(Clone, Copy, Debug)]
pub struct MatMut {
    /// The first element.
    pub data: *mut u8,
    /// Its type.
    pub dtype: DType,
    /// Rows.
    pub rows: usize,
    /// Elements from one row to the next.
    pub stride: usize,
}

// SAFETY: views carry no ownership; the kernels that take them state what must hold.
unsafe impl Send for MatRef {}
// SAFETY: as above.
unsafe impl Sync for MatRef {}
// SAFETY: as above; kernels write disjoint parts from different threads.
unsafe impl Send for MatMut {}
// SAFETY: as above.
unsafe impl Sync for MatMut {}

impl MatRef {
    /// The start of row `r`.
    ///
    /// # Safety
    /// `r` is less than `rows` and the view is of live memory.
    #[inline(always)]
    pub unsafe fn row(&self, r: usize) -> *const u8 {
        // SAFETY: by the contract the row lies in the allocation.
        unsafe { self.data.add(r * self.stride * self.dtype.size()) }
    }
}

impl MatMut {
    /// The start of row `r`.
    ///
    /// # Safety
    /// `r` is less than `rows` and the view is of live memory.
    #[inline(always)]
    pub unsafe fn row(&self, r: usize) -> *mut u8 {
        // SAFETY: by the contract the row lies in the allocation.
        unsafe { self.data.add(r * self.stride * self.dtype.size()) }
    }
}
