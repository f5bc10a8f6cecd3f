//! `y = x W^T + b` with 8-bit weights of one scale an output, and inputs of one scale a row (W8A8).
//!
//! Weights are repacked into panels of 16 columns, `[K / 4][16][4]` bytes from 0. A row of inputs is rounded to 8 bits
//! with the scale that makes its greatest 127, as the row alone decides. The sum of products is an exact 32-bit integer,
//! so it is the same for every instruction set, number of rows and order; what is rounded are the input, that integer
//! as a float, its product with the scales, and the sum with the bias.

mod kernel;

use crate::buffer::Buffer;
use crate::linear::Tiles;
use crate::pool::AssumeSync;
use crate::simd::{LANES, dispatch};
use crate::{Cpu, MatMut, MatRef, Pool};
use kernel::{GROUP, Input, PanelPair, QuantizeTile};
use std::cell::RefCell;

/// The most inputs whose products fit 32 bits: `128 * 127 * k` is below 2^31.
const MAX_K: usize = 132_096;
/// Bytes of inputs that one pass over the panels uses: half of a typical second-level cache.
const BLOCK_BYTES: usize = 512 << 10;
/// Below this many elements the caller quantises the input by itself.
const QUANTIZE_ALONE: usize = 1 << 14;

thread_local! {
    static INPUT: RefCell<Buffer> = RefCell::new(Buffer::zeroed(1 << 16));
}

/// An 8-bit weight as panels of 16 output columns, with the scales and the bias of its outputs.
#[derive(Debug)]
pub struct Int8Weight {
    panels: Buffer,
    /// `[panels][16]`, as is `bias`.
    scale: Vec<f32>,
    bias: Vec<f32>,
    n: usize,
    k: usize,
}

impl Int8Weight {
    /// Repacks `data` `[n, k]` with a scale for each of `n` outputs: the weight is `data * scale`.
    ///
    /// # Errors
    /// A length is not what `n` and `k` ask for, or `k` is 0 or so large that sums of products overflow.
    pub fn pack(
        pool: &Pool,
        data: &[i8],
        scale: &[f32],
        (n, k): (usize, usize),
        bias: Option<&[f32]>,
    ) -> Result<Self, String> {
        if k == 0 || k > MAX_K {
            return Err(format!("int8: {k} inputs, which must be from 1 to {MAX_K}"));
        }
        if n.checked_mul(k) != Some(data.len()) || scale.len() != n || bias.is_some_and(|b| b.len() != n) {
            return Err(format!("int8: {} bytes and {} scales for {n} rows of {k}", data.len(), scale.len()));
        }
        let count = n.div_ceil(LANES);
        let bytes = k.next_multiple_of(GROUP) * LANES;
        let mut panels = Buffer::zeroed(count * bytes);
        let target = AssumeSync(panels.as_mut_ptr());
        pool.run(count, |panel, _| {
            for column in 0..LANES.min(n - panel * LANES) {
                for (i, &w) in data[(panel * LANES + column) * k..][..k].iter().enumerate() {
                    let at = panel * bytes + (i / GROUP * LANES + column) * GROUP + i % GROUP;
                    // SAFETY: the place lies in the panel, which belongs to this chunk.
                    unsafe { *target.get().add(at) = w.cast_unsigned() ^ 0x80 };
                }
            }
        });
        let padded = |values: &[f32]| {
            let mut all = vec![0.0; count * LANES];
            all[..values.len()].copy_from_slice(values);
            all
        };
        Ok(Self { panels, scale: padded(scale), bias: padded(bias.unwrap_or_default()), n, k })
    }

    /// Output features.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Input features.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Bytes held.
    pub fn size_bytes(&self) -> usize {
        self.panels.len() + (self.scale.len() + self.bias.len()) * size_of::<f32>()
    }

    fn panel_count(&self) -> usize {
        self.n.div_ceil(LANES)
    }

    /// Steps of `GROUP` inputs.
    fn groups(&self) -> usize {
        self.k.div_ceil(GROUP)
    }

    fn panel(&self, panel: usize) -> *const u8 {
        debug_assert!(panel < self.panel_count());
        self.panels.as_ptr().wrapping_add(panel * self.groups() * LANES * GROUP)
    }
}

/// `out[m, n] = scale[n] * s[m] * sum_k q[m, k] w[n, k] + bias[n]`, where `s[m]` is the greatest absolute input of row
/// `m` divided by 127 and `q[m, k]` is `x[m, k] / s[m]` rounded to the nearest integer, ties to even.
///
/// A row that holds what is not a number or not finite gives what is not a number.
///
/// # Safety
/// `x` is of `x.rows` rows of `w.k()` elements, `out` of as many rows of `w.n()` elements; they do not overlap.
///
/// # Panics
/// When `x` and `out` differ in rows.
pub unsafe fn int8_linear(cpu: &Cpu, w: &Int8Weight, x: MatRef, out: MatMut) {
    assert_eq!(x.rows, out.rows, "int8_linear: input and output differ in rows");
    if x.rows == 0 {
        return;
    }
    let limit = kernel::tile_rows(cpu.isa);
    let tiles = Tiles::new(x.rows, limit);
    INPUT.with_borrow_mut(|buffer| {
        let bytes = Input::bytes(x.rows, w.groups());
        let input = Input { start: buffer.reserve(bytes), groups: w.groups(), tiles };
        quantize(cpu, x, w.k, input);
        let tiles_of_block = (BLOCK_BYTES / (w.groups() * GROUP * limit)).clamp(1, tiles.count());
        let blocks = tiles.count().div_ceil(tiles_of_block);
        let pairs = w.panel_count().div_ceil(2);
        let shared = AssumeSync((w, input, out));
        cpu.pool.run(blocks * pairs, |chunk, _| {
            let (w, input, out) = shared.get();
            let first = chunk / pairs * tiles_of_block;
            let range = first..(first + tiles_of_block).min(tiles.count());
            let pair = PanelPair { w, input, panel: chunk % pairs * 2, tiles: range, out };
            // SAFETY: the set is available; the matrices are as `int8_linear` demands, the input is quantised, and each
            // chunk writes the outputs of its own tiles and panels only.
            unsafe { dispatch(cpu.isa, pair) }
        });
    });
}

fn quantize(cpu: &Cpu, x: MatRef, k: usize, input: Input) {
    let shared = AssumeSync((x, input));
    let tile = |tile: usize| {
        let (x, input) = shared.get();
        // SAFETY: the set is available; rows are as `int8_linear` demands, and tiles do not overlap.
        unsafe { dispatch(cpu.isa, QuantizeTile { x, k, input, tile }) }
    };
    if x.rows * k < QUANTIZE_ALONE {
        (0..input.tiles.count()).for_each(tile);
    } else {
        cpu.pool.run(input.tiles.count(), |index, _| tile(index));
    }
}

#[cfg(test)]
mod tests;
