//! Floats to blocks, for weights that are quantised when they are loaded.

use super::{BLOCK, Format};
use crate::Pool;
use crate::dtype::{Element, with_element};
use crate::linear::WeightRef;
use crate::pool::AssumeSync;
use crate::simd::LANES;
use half::f16;

/// Quantises a weight to blocks of `Q8_0` (the greatest of 32 becomes 127) or `Q4_1` (the least becomes 0, the
/// greatest 15), each weight rounded to the nearest of its block's values.
///
/// # Errors
/// The format is another, or rows are not whole blocks.
///
/// # Safety
/// `w.data` points to `w.n * w.k` elements.
pub unsafe fn quantize_rows(pool: &Pool, format: Format, w: WeightRef) -> Result<Vec<u8>, String> {
    let encode = match format {
        Format::Q8_0 => encode_q8_0,
        Format::Q4_1 => encode_q4_1,
        _ => return Err(format!("floats are quantised to Q8_0 or Q4_1, not {format:?}")),
    };
    if w.k == 0 || !w.k.is_multiple_of(BLOCK) {
        return Err(format!("{format:?}: rows of {} weights are not whole blocks of {BLOCK}", w.k));
    }
    let row_bytes = w.k / BLOCK * format.bytes();
    let mut out = vec![0; w.n * row_bytes];
    let shared = AssumeSync((w.data, out.as_mut_ptr()));
    pool.run(w.n.div_ceil(LANES), |chunk, _| {
        let (data, out) = shared.get();
        for row in chunk * LANES..((chunk + 1) * LANES).min(w.n) {
            for block in 0..w.k / BLOCK {
                // SAFETY: the block lies in the weight; its bytes are this chunk's own.
                unsafe {
                    let floats: [f32; BLOCK] = with_element!(w.dtype, T => {
                        let from = data.cast::<T>().add(row * w.k + block * BLOCK);
                        std::array::from_fn(|i| from.add(i).read_unaligned().to_f32())
                    });
                    let to = out.add(row * row_bytes + block * format.bytes());
                    encode(&floats, std::slice::from_raw_parts_mut(to, format.bytes()));
                }
            }
        }
    });
    Ok(out)
}

/// The scale as 16 bits hold it, and what to multiply with to divide by it.
fn scale(step: f32, to: &mut [u8]) -> f32 {
    let half = f16::from_f32(step);
    to.copy_from_slice(&half.to_le_bytes());
    let inverse = 1.0 / half.to_f32();
    if inverse.is_finite() { inverse } else { 0.0 }
}

fn encode_q8_0(floats: &[f32; BLOCK], to: &mut [u8]) {
    let greatest = floats.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let inverse = scale(greatest / 127.0, &mut to[..2]);
    for (byte, x) in to[2..].iter_mut().zip(floats) {
        *byte = (x * inverse).round_ties_even().clamp(-127.0, 127.0) as i8 as u8;
    }
}

fn encode_q4_1(floats: &[f32; BLOCK], to: &mut [u8]) {
    let least = floats.iter().fold(f32::INFINITY, |least, &x| least.min(x));
    let greatest = floats.iter().fold(f32::NEG_INFINITY, |most, &x| most.max(x));
    let min = f16::from_f32(least);
    to[2..4].copy_from_slice(&min.to_le_bytes());
    let inverse = scale((greatest - min.to_f32()) / 15.0, &mut to[..2]);
    let q = |x: f32| ((x - min.to_f32()) * inverse).round_ties_even().clamp(0.0, 15.0) as u8;
    for (i, byte) in to[4..].iter_mut().enumerate() {
        *byte = q(floats[i]) | q(floats[i + BLOCK / 2]) << 4;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Random, dense};
    use super::*;
    use crate::DType;

    /// Half a step, and what 16 bits lose of a scale 127 or 15 times, and of a minimum.
    #[test]
    fn weights_are_within_half_a_step() {
        let pool = Pool::new(2);
        let (n, k) = (19, 96);
        let mut floats = Random(3).floats(n * k);
        floats[..32].fill(0.0);
        floats[32..64].fill(-0.75);
        floats[64..96].fill(1e-9);
        let weight = WeightRef { data: floats.as_ptr().cast(), dtype: DType::F32, n, k };
        for (format, steps) in [(Format::Q8_0, 254.0), (Format::Q4_1, 15.0)] {
            // SAFETY: `n * k` floats.
            let bytes = unsafe { quantize_rows(&pool, format, weight) }.unwrap();
            for (block, decoded) in floats.chunks(32).zip(dense(format, &bytes).chunks(32)) {
                let most = block.iter().fold(f32::MIN, |a, &b| a.max(b));
                let least = block.iter().fold(f32::MAX, |a, &b| a.min(b));
                let size = most.abs().max(least.abs());
                let range = if format == Format::Q8_0 { 2.0 * size } else { most - least };
                for (x, y) in block.iter().zip(decoded) {
                    let error = (x - y).abs();
                    assert!(error <= range / steps / 2.0 + size * 1e-3 + 1e-8, "{format:?}: {x} became {y}");
                }
            }
        }
    }

    #[test]
    fn what_is_not_whole_blocks_or_another_format_is_refused() {
        let pool = Pool::new(1);
        let weight = WeightRef { data: [0.0f32; 40].as_ptr().cast(), dtype: DType::F32, n: 1, k: 40 };
        // SAFETY: forty floats.
        let refused = |format| unsafe { quantize_rows(&pool, format, weight) }.unwrap_err();
        assert!(refused(Format::Q8_0).contains("rows of 40 weights are not whole blocks of 32"));
        assert!(refused(Format::Q4K).contains("to Q8_0 or Q4_1, not Q4K"));
    }
}
