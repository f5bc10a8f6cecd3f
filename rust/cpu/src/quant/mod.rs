//! `y = x W^T + b` with weights that stay quantised: GGUF blocks here, 8 bits an output row in [`int8_linear`].
//!
//! Weights are repacked into panels of 16 columns; for each 32 of k: the integers as `[8][16][4]` bytes (or nibbles in
//! half of that), then scales and minima. Inputs are quantised to 8 bits for each 32 of a row, as the row alone
//! decides. Products of integers are exact, so every instruction set gives the same bits, and a row's sum goes
//! through its blocks in order whatever the number of rows.

mod blocks;
mod encode;
mod int8;
mod kernel;
mod rows;

pub use blocks::{Block, Format};
pub use encode::quantize_rows;
pub use int8::{Int8Weight, int8_linear};
pub use rows::quantized_rows;

use crate::buffer::Buffer;
use crate::linear::Tiles;
use crate::pool::AssumeSync;
use crate::simd::{LANES, dispatch};
use crate::{Cpu, MatMut, MatRef, Pool};
use kernel::{ChunkOfPanels, QuantizeRow};
use std::cell::RefCell;

/// Inputs that share a scale.
const BLOCK: usize = 32;
/// Panels of a piece of work.
const PANELS: usize = 4;

thread_local! {
    static INPUT: RefCell<Buffer> = RefCell::new(Buffer::zeroed(1 << 16));
}

/// A quantised weight as panels of 16 output columns, with its bias.
#[derive(Debug)]
pub struct QuantizedWeight {
    panels: Buffer,
    bias: Vec<f32>,
    format: Format,
    n: usize,
    k: usize,
}

impl QuantizedWeight {
    /// Repacks a GGUF tensor of `n` rows of `k` weights.
    ///
    /// # Errors
    /// Rows are not whole blocks, or `data` or `bias` have another length than `n` and `k` ask for.
    pub fn pack(
        pool: &Pool,
        format: Format,
        data: &[u8],
        (n, k): (usize, usize),
        bias: Option<&[f32]>,
    ) -> Result<Self, String> {
        if k == 0 || !k.is_multiple_of(format.weights()) {
            return Err(format!(
                "{format:?}: rows of {k} weights are not whole blocks of {}",
                format.weights()
            ));
        }
        let row_bytes = k / format.weights() * format.bytes();
        if data.len() != n * row_bytes || bias.is_some_and(|b| b.len() != n) {
            return Err(format!("{format:?}: {} bytes for {n} rows of {row_bytes}", data.len()));
        }
        let panels = n.div_ceil(LANES);
        let mut buffer = Buffer::zeroed(panels * (k / BLOCK) * kernel::block_bytes(format));
        let target = AssumeSync(buffer.as_mut_ptr());
        pool.run(panels, |panel, _| {
            let mut block = Block::default();
            for column in 0..LANES.min(n - panel * LANES) {
                let row = &data[(panel * LANES + column) * row_bytes..][..row_bytes];
                for (index, bytes) in row.chunks_exact(format.bytes()).enumerate() {
                    format.decode(bytes, &mut block);
                    for part in 0..format.weights() / BLOCK {
                        let place = (panel * (k / BLOCK) + index * format.weights() / BLOCK + part)
                            * kernel::block_bytes(format);
                        // SAFETY: the place is the block's own in the panel, which belongs to this chunk.
                        unsafe { kernel::store(target.get().add(place), format, column, &block, part) };
                    }
                }
            }
        });
        let mut padded = vec![0.0; panels * LANES];
        padded[..n].copy_from_slice(bias.unwrap_or(&vec![0.0; n]));
        Ok(Self { panels: buffer, bias: padded, format, n, k })
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
        self.panels.len() + self.bias.len() * size_of::<f32>()
    }

    fn panel_count(&self) -> usize {
        self.n.div_ceil(LANES)
    }
}

/// `out[m, n] = sum_k x[m, k] w[n, k] + bias[n]`, inputs rounded to 8 bits.
///
/// # Safety
/// `x` is of `x.rows` rows of `w.k()` elements, `out` of as many rows of `w.n()` elements; they do not overlap.
///
/// # Panics
/// When `x` and `out` differ in rows.
pub unsafe fn quantized_linear(cpu: &Cpu, w: &QuantizedWeight, x: MatRef, out: MatMut) {
    assert_eq!(x.rows, out.rows, "quantized_linear: input and output differ in rows");
    if x.rows == 0 {
        return;
    }
    let tiles = Tiles::new(x.rows, kernel::tile_rows(cpu.isa));
    let input = kernel::Input::new(x.rows, w.k);
    INPUT.with_borrow_mut(|buffer| {
        let packed = AssumeSync(buffer.reserve(input.bytes()));
        let quantize = |tile: usize| {
            let (first, end) = (tiles.start(tile), tiles.start(tile + 1));
            for row in first..end {
                // SAFETY: the set is available; each row has its own place in the input.
                unsafe {
                    let place = input.row(packed.get(), first, end - first, row - first);
                    dispatch(cpu.isa, QuantizeRow { x, row, k: w.k, place });
                }
            }
        };
        if x.rows * w.k < 1 << 14 {
            (0..tiles.count()).for_each(quantize);
        } else {
            cpu.pool.run(tiles.count(), |tile, _| quantize(tile));
        }
        let shared = AssumeSync((w, packed.get(), tiles, out));
        cpu.pool.run(w.panel_count().div_ceil(PANELS), |chunk, _| {
            let (w, packed, tiles, out) = shared.get();
            let first = chunk * PANELS;
            let panels = (first, (first + PANELS).min(w.panel_count()));
            // SAFETY: the set is available; the input is quantised and each chunk writes its own columns.
            unsafe { dispatch(cpu.isa, ChunkOfPanels { w, input, packed, tiles, panels, out }) };
        });
    });
}

#[cfg(test)]
mod tests;
