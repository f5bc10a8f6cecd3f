//! Rows of a quantised weight as floats: embeddings whose table is also the head's weight.

use super::{BLOCK, QuantizedWeight, kernel};
use crate::dtype::{Element, with_element};
use crate::elementwise::{Ints, check_ids, over_rows};
use crate::pool::AssumeSync;
use crate::simd::LANES;
use crate::{Cpu, MatMut};

/// Writes rows `ids` of the weight to `out`.
///
/// # Errors
/// An id is not a row.
///
/// # Safety
/// There are `out.rows` ids, and rows of `out` have `w.k()` elements.
pub unsafe fn quantized_rows(cpu: &Cpu, w: &QuantizedWeight, ids: Ints, out: MatMut) -> Result<(), String> {
    // SAFETY: there are `out.rows` ids.
    unsafe { check_ids(ids, out.rows, w.n)? };
    let ids = AssumeSync(ids);
    over_rows(cpu, out.rows, w.k, |rows| {
        for row in rows {
            // SAFETY: ids are rows of the weight; rows of `out` have `k` elements.
            unsafe { copy_row(w, ids.get().at(row) as usize, out, row) }
        }
    });
    Ok(())
}

unsafe fn copy_row(w: &QuantizedWeight, id: usize, out: MatMut, row: usize) {
    let bytes = kernel::block_bytes(w.format);
    let blocks = w.k / BLOCK;
    let panel = w.panels.as_ptr().wrapping_add(id / LANES * blocks * bytes);
    for block in 0..blocks {
        // SAFETY: the caller's.
        unsafe {
            let weights = kernel::weights_of(panel.add(block * bytes), w.format, id % LANES);
            with_element!(out.dtype, T => {
                let to = out.row(row).cast::<T>().add(block * BLOCK);
                for (i, &x) in weights.iter().enumerate() {
                    to.add(i).write(T::from_f32(x));
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{FORMATS, cpus, dense, random_blocks};
    use super::*;
    use crate::DType;

    #[test]
    fn rows_are_the_weights_bit_for_bit() {
        for format in FORMATS {
            let (n, k) = (37, 512);
            let bytes = random_blocks(format, n * k / format.weights());
            let weight = dense(format, &bytes);
            let cpu = &cpus()[0];
            let w = QuantizedWeight::pack(&cpu.pool, format, &bytes, (n, k), None).unwrap();
            let ids = [36i64, 0, 17, 17];
            let mut out = vec![f32::NAN; ids.len() * k];
            let view =
                MatMut { data: out.as_mut_ptr().cast(), dtype: DType::F32, rows: ids.len(), stride: k };
            // SAFETY: four ids, rows of `k` elements.
            unsafe { quantized_rows(cpu, &w, Ints::I64(ids.as_ptr()), view) }.unwrap();
            for (row, id) in out.chunks(k).zip(ids) {
                assert_eq!(row, &weight[id as usize * k..][..k], "{format:?} {id}");
            }
            // SAFETY: as above.
            let error = unsafe { quantized_rows(cpu, &w, Ints::I64([0, -1, 0, 0].as_ptr()), view) };
            assert_eq!(error.unwrap_err(), "embedding: token id -1 at 1 is not below 37");
        }
    }
}
