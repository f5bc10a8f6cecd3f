//! Rows of a packed weight: embeddings whose table is also the head's weight.

use super::PackedWeight;
use super::pack::group;
use crate::dtype::with_element;
use crate::elementwise::{Ints, check_ids, over_rows};
use crate::pool::AssumeSync;
use crate::simd::LANES;
use crate::{Cpu, MatMut};

/// Copies rows `ids` of the weight to `out`.
///
/// # Errors
/// An id is not a row.
///
/// # Safety
/// There are `out.rows` ids, and rows of `out` have `w.k()` elements.
///
/// # Panics
/// When `out` is of another type than the weight.
pub unsafe fn packed_rows(cpu: &Cpu, w: &PackedWeight, ids: Ints, out: MatMut) -> Result<(), String> {
    assert_eq!(w.dtype(), out.dtype, "packed_rows: types differ");
    // SAFETY: there are `out.rows` ids.
    unsafe { check_ids(ids, out.rows, w.n())? };
    let ids = AssumeSync(ids);
    over_rows(cpu, out.rows, w.k(), |rows| {
        for row in rows {
            // SAFETY: ids are rows of the weight; rows of `out` have `k` elements.
            unsafe { copy_row(w, ids.get().at(row) as usize, out, row) }
        }
    });
    Ok(())
}

unsafe fn copy_row(w: &PackedWeight, id: usize, out: MatMut, row: usize) {
    let group = group(w.dtype());
    with_element!(w.dtype(), T => {
        // SAFETY: the panel has the row at this column; the caller has seen to the rest.
        unsafe {
            let from = w.panel(id / LANES).cast::<T>().add(id % LANES * group);
            let to = out.row(row).cast::<T>();
            for k in 0..w.k() {
                *to.add(k) = *from.add(k / group * LANES * group + k % group);
            }
        }
    });
}
