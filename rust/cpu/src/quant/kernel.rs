//! The layout of packed blocks and the loops over them.

use super::blocks::Block;
use super::{BLOCK, Format, QuantizedWeight};
use crate::bytes::Scale;
use crate::elementwise::{load, store as store_lanes};
use crate::linear::Tiles;
use crate::simd::{F32x16, Kernel, LANES};
use crate::{Isa, MatMut, MatRef};
use half::f16;

/// Most rows of a tile.
const MAX_ROWS: usize = 8;
/// Inputs multiplied by one instruction.
const GROUP: usize = 4;

/// Rows of the largest tile.
pub fn tile_rows(isa: Isa) -> usize {
    if isa == Isa::Avx512 { MAX_ROWS } else { 4 }
}

const fn integer_bytes(format: Format) -> usize {
    if format.is_nibble() { BLOCK * LANES / 2 } else { BLOCK * LANES }
}

const fn runs(format: Format) -> usize {
    BLOCK / format.run()
}

/// Bytes of 32 steps of a panel: integers, scales by run, minima where there are.
pub const fn block_bytes(format: Format) -> usize {
    let minima = if format.has_min() { 1 } else { 0 };
    integer_bytes(format) + (runs(format) + minima) * LANES * scale_bytes(format)
}

/// Blocks of 32 have 16-bit scales of their own; those of larger blocks are products, which 16 bits do not hold.
const fn scale_bytes(format: Format) -> usize {
    if format.weights() == BLOCK { size_of::<f16>() } else { size_of::<f32>() }
}

/// Scales or minima of a block: those of run `index`, minima after the scales.
#[inline(always)]
unsafe fn load_scales<V: F32x16>(block: *const u8, format: Format, index: usize) -> V {
    // SAFETY: the caller's: a packed block.
    unsafe {
        let at = block.add(integer_bytes(format) + index * LANES * scale_bytes(format));
        if scale_bytes(format) == 2 { V::load_f16(at.cast()) } else { V::load(at.cast()) }
    }
}

/// Puts 32 weights of one column into a packed block.
///
/// # Safety
/// `to` has `block_bytes(format)`.
pub unsafe fn store(to: *mut u8, format: Format, column: usize, block: &Block, part: usize) {
    // SAFETY: the places lie within the block's bytes.
    unsafe {
        let (low, high) = block.q[part * BLOCK..][..BLOCK].split_at(BLOCK / 2);
        let put_group = |group: usize, bytes: [u8; GROUP]| {
            *to.add((group * LANES + column) * GROUP).cast::<[u8; GROUP]>() = bytes;
        };
        for (group, (low, high)) in low.chunks_exact(GROUP).zip(high.chunks_exact(GROUP)).enumerate() {
            if format.is_nibble() {
                // The second half of the inputs lies in the high nibbles.
                put_group(group, std::array::from_fn(|i| low[i] | high[i] << 4));
            } else {
                put_group(group, std::array::from_fn(|i| low[i]));
                put_group(group + BLOCK / 2 / GROUP, std::array::from_fn(|i| high[i]));
            }
        }
        let put = |index: usize, x: f32| {
            let at = to.add(integer_bytes(format) + (index * LANES + column) * scale_bytes(format));
            if scale_bytes(format) == 2 {
                at.cast::<f16>().write_unaligned(f16::from_f32(x));
            } else {
                at.cast::<f32>().write_unaligned(x);
            }
        };
        for run in 0..runs(format) {
            put(run, block.scale[part * runs(format) + run]);
        }
        if format.has_min() {
            put(1, block.min[part]);
        }
    }
}

/// The 32 weights that [`store`] has put there, in order.
///
/// # Safety
/// `from` is a packed block.
pub unsafe fn weights_of(from: *const u8, format: Format, column: usize) -> [f32; BLOCK] {
    // SAFETY: the places lie within the block's bytes.
    unsafe {
        let get = |index: usize| {
            let at = from.add(integer_bytes(format) + (index * LANES + column) * scale_bytes(format));
            if scale_bytes(format) == 2 {
                at.cast::<f16>().read_unaligned().to_f32()
            } else {
                at.cast::<f32>().read_unaligned()
            }
        };
        let min = if format.has_min() { get(1) } else { 0.0 };
        std::array::from_fn(|i| {
            let at = |i: usize| (i / GROUP * LANES + column) * GROUP + i % GROUP;
            let q = if format.is_nibble() {
                *from.add(at(i % (BLOCK / 2))) >> (i / (BLOCK / 2) * 4) & 15
            } else {
                *from.add(at(i))
            };
            get(i / format.run()) * (i32::from(q) - format.zero()) as f32 + min
        })
    }
}

/// Where quantised inputs lie: tiles of `[block][row]` records of a scale, two sums of 16 and 32 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    rows: usize,
    blocks: usize,
}

const RECORD: usize = size_of::<f32>() + 2 * size_of::<i32>() + 4 + BLOCK;

impl Input {
    pub fn new(rows: usize, k: usize) -> Self {
        Self { rows, blocks: k / BLOCK }
    }

    pub fn bytes(self) -> usize {
        self.rows * self.blocks * RECORD
    }

    /// The first record of a row, and bytes from one to the next.
    pub fn row(self, packed: *mut u8, first: usize, rows: usize, row: usize) -> (*mut u8, usize) {
        (packed.wrapping_add((first * self.blocks + row) * RECORD), rows * RECORD)
    }
}

/// Quantises a row: for each 32 inputs, the scale that makes the greatest 127.
pub struct QuantizeRow {
    pub x: MatRef,
    pub row: usize,
    pub k: usize,
    pub place: (*mut u8, usize),
}

impl Kernel for QuantizeRow {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: F32x16>(self) {
        // SAFETY: the row has `k` elements, a multiple of 32, and the place a record for each 32.
        unsafe {
            let from = self.x.row(self.row);
            for block in 0..self.k / BLOCK {
                let parts = [0, LANES].map(|half| load::<V>(self.x.dtype, from, block * BLOCK + half, LANES));
                let size = |v: V| v.max(V::zero().sub(v));
                let greatest = size(parts[0]).max(size(parts[1])).greatest();
                let strange = parts[0].unordered() | parts[1].unordered() != 0;
                let scale = Scale::new(greatest, strange);
                let record = self.place.0.add(block * self.place.1);
                record.cast::<f32>().write_unaligned(scale.back);
                for (half, part) in parts.into_iter().enumerate() {
                    let bytes = scale.round(part);
                    record.add(16 + half * LANES).cast::<[i8; LANES]>().write_unaligned(bytes);
                    let sum: i32 = bytes.into_iter().map(i32::from).sum();
                    record.add(4 + 4 * half).cast::<i32>().write_unaligned(sum);
                }
            }
        }
    }
}

/// Some panels of columns for all tiles of rows.
pub struct ChunkOfPanels<'a> {
    pub w: &'a QuantizedWeight,
    pub input: Input,
    pub packed: *mut u8,
    pub tiles: Tiles,
    pub panels: (usize, usize),
    pub out: MatMut,
}

impl Kernel for ChunkOfPanels<'_> {
    const MULTIPLIES_BYTES: bool = true;
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: F32x16>(self) {
        // SAFETY: the caller's.
        unsafe {
            match self.w.format {
                // Inlined once for each, so that its constants are the loops' own.
                Format::Q4_0 => self.multiply::<V>(Format::Q4_0),
                Format::Q4_1 => self.multiply::<V>(Format::Q4_1),
                Format::Q5_0 => self.multiply::<V>(Format::Q5_0),
                Format::Q5_1 => self.multiply::<V>(Format::Q5_1),
                Format::Q8_0 => self.multiply::<V>(Format::Q8_0),
                Format::Q4K => self.multiply::<V>(Format::Q4K),
                Format::Q5K => self.multiply::<V>(Format::Q5K),
                Format::Q6K => self.multiply::<V>(Format::Q6K),
            }
        }
    }
}

impl ChunkOfPanels<'_> {
    #[inline(always)]
    unsafe fn multiply<V: F32x16>(&self, format: Format) {
        let blocks = self.input.blocks;
        for panel in self.panels.0..self.panels.1 {
            let weights = self.w.panels.as_ptr().wrapping_add(panel * blocks * block_bytes(format));
            for tile in 0..self.tiles.count() {
                let (first, rows) =
                    (self.tiles.start(tile), self.tiles.start(tile + 1) - self.tiles.start(tile));
                let (records, _) = self.input.row(self.packed, first, rows, 0);
                macro_rules! choose {
                    ($($rows:literal)*) => {
                        match rows {
                            // SAFETY: the panel and the tile have `blocks` blocks.
                            $($rows => unsafe {
                                let sums = tile_of::<V, $rows>(format, weights, records, blocks);
                                self.finish(panel, first, &sums);
                            })*
                            _ => unreachable!("a tile has at most {MAX_ROWS} rows"),
                        }
                    };
                }
                if V::TILE_ROWS > 6 {
                    choose!(1 2 3 4 5 6 7 8);
                } else {
                    choose!(1 2 3 4);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn finish<V: F32x16>(&self, panel: usize, first: usize, sums: &[V]) {
        let column = panel * LANES;
        let columns = LANES.min(self.w.n - column);
        // SAFETY: the rows are the tile's, the columns the panel's.
        unsafe {
            let bias = V::load(self.w.bias[column..].as_ptr());
            for (row, sum) in sums.iter().enumerate() {
                store_lanes(sum.add(bias), self.out.dtype, self.out.row(first + row), column, columns);
            }
        }
    }
}

/// Sums of a tile: for each block the exact integer product, then one multiply-add with the scales, and one with the
/// minima.
#[inline(always)]
unsafe fn tile_of<V: F32x16, const ROWS: usize>(
    format: Format,
    weights: *const u8,
    records: *const u8,
    blocks: usize,
) -> [V; ROWS] {
    // SAFETY: the caller's.
    unsafe {
        let mut sums = [V::zero(); ROWS];
        for block in 0..blocks {
            let w = weights.add(block * block_bytes(format));
            let x = records.add(block * ROWS * RECORD);
            for run in 0..runs(format) {
                let scale = load_scales::<V>(w, format, run);
                let min = if format.has_min() { load_scales(w, format, 1) } else { V::zero() };
                let mut dots = [V::int(0); ROWS];
                for (row, dot) in dots.iter_mut().enumerate() {
                    let sum = input_sum(x.add(row * RECORD), format, run);
                    *dot = V::int(-sum.wrapping_mul(if format.zero() == 128 {
                        V::START
                    } else {
                        format.zero()
                    }));
                }
                let groups = format.run() / GROUP;
                for group in 0..groups {
                    let at = run * groups + group;
                    let bytes = if !format.is_nibble() {
                        V::load_bytes(w.add(at * LANES * GROUP))
                    } else if at < groups / 2 {
                        V::low_nibbles(V::load_bytes(w.add(at * LANES * GROUP)))
                    } else {
                        V::high_nibbles(V::load_bytes(w.add((at - groups / 2) * LANES * GROUP)))
                    };
                    for (row, dot) in dots.iter_mut().enumerate() {
                        let four = x.add(row * RECORD + 16 + at * GROUP).cast::<i32>().read_unaligned();
                        *dot = if format.zero() == 128 {
                            V::dot_wide(*dot, bytes, four)
                        } else {
                            V::dot(*dot, bytes, four)
                        };
                    }
                }
                for (row, sum) in sums.iter_mut().enumerate() {
                    let x = x.add(row * RECORD);
                    let of_input = x.cast::<f32>().read_unaligned();
                    *sum = V::from_int(dots[row]).fma(scale.mul(V::splat(of_input)), *sum);
                    if format.has_min() {
                        let inputs = of_input * input_sum(x, format, run) as f32;
                        *sum = min.fma(V::splat(inputs), *sum);
                    }
                }
            }
        }
        sums
    }
}

/// The sum of a run's integers of a record.
#[inline(always)]
unsafe fn input_sum(record: *const u8, format: Format, run: usize) -> i32 {
    // SAFETY: the caller's.
    unsafe {
        let sum = |half: usize| record.add(4 + 4 * half).cast::<i32>().read_unaligned();
        if format.run() == BLOCK { sum(0) + sum(1) } else { sum(run) }
    }
}
