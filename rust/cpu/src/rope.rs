//! Rotary position embedding and the write of keys and values into their cache slots.

use crate::bytes::Scale;
use crate::elementwise::{Ints, load, over_rows, store};
use crate::pool::AssumeSync;
use crate::simd::{F32x16, Kernel, LANES, dispatch};
use crate::{CacheType, Cpu, DType, MatMut, MatRef};
use std::ops::Range;

/// Positions and the table of their rotations.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    /// The position of each token.
    pub positions: Ints,
    /// `[max_position, rotary_dim]`, contiguous: cosines in the first half of a row, sines in the second.
    pub cos_sin: *const f32,
    /// Rows of the table.
    pub max_position: usize,
    /// Values of a head that are rotated; even.
    pub rotary_dim: usize,
    /// Pairs are `(2 i, 2 i + 1)` rather than `(i, i + rotary_dim / 2)`.
    pub interleaved: bool,
}

/// Rotates the first `rotary_dim` values of each of `heads` heads of `head_dim` in place.
///
/// # Errors
/// A position is not a row of the table.
///
/// # Safety
/// There is a position for each row of `x`, rows have `heads * head_dim` elements, and the table is as described.
pub unsafe fn rotary(
    cpu: &Cpu,
    rotation: Rotation,
    x: MatMut,
    heads: usize,
    head_dim: usize,
) -> Result<(), String> {
    for token in 0..x.rows {
        // SAFETY: there is a position for each row.
        let position = unsafe { rotation.positions.at(token) };
        if position < 0 || position as usize >= rotation.max_position {
            return Err(format!("rotary: position {position} is not below {}", rotation.max_position));
        }
    }
    let rotation = AssumeSync(rotation);
    over_rows(cpu, x.rows, heads * head_dim, |tokens| {
        // SAFETY: the set is available; ranges of tokens do not overlap.
        unsafe { dispatch(cpu.isa, Rotary { rotation: rotation.get(), x, heads, head_dim, tokens }) }
    });
    Ok(())
}

struct Rotary {
    rotation: Rotation,
    x: MatMut,
    heads: usize,
    head_dim: usize,
    tokens: Range<usize>,
}

impl Kernel for Rotary {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: F32x16>(self) {
        let Self { rotation, x, heads, head_dim, tokens } = self;
        let half = rotation.rotary_dim / 2;
        for token in tokens {
            // SAFETY: the position was checked; each head has `rotary_dim` elements or more.
            unsafe {
                let position = rotation.positions.at(token) as usize;
                let cos = rotation.cos_sin.add(position * rotation.rotary_dim);
                let sin = cos.add(half);
                for head in 0..heads {
                    let at = x.row(token).add(head * head_dim * x.dtype.size());
                    if rotation.interleaved {
                        for i in 0..half {
                            let (c, s) = (V::splat(*cos.add(i)), V::splat(*sin.add(i)));
                            rotate::<V>(x.dtype, at, (2 * i, 2 * i + 1), (c, s), 1);
                        }
                    } else {
                        for i in (0..half).step_by(LANES) {
                            let count = LANES.min(half - i);
                            let turn = (V::load_some(cos.add(i), count), V::load_some(sin.add(i), count));
                            rotate::<V>(x.dtype, at, (i, half + i), turn, count);
                        }
                    }
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn rotate<V: F32x16>(
    dtype: DType,
    at: *mut u8,
    place: (usize, usize),
    (cos, sin): (V, V),
    count: usize,
) {
    // SAFETY: the caller's: `count` elements at both places.
    unsafe {
        let (a, b) = (load::<V>(dtype, at, place.0, count), load::<V>(dtype, at, place.1, count));
        store(a.mul(cos).sub(b.mul(sin)), dtype, at, place.0, count);
        store(b.mul(cos).add(a.mul(sin)), dtype, at, place.1, count);
    }
}

/// A layer's cache `[num_blocks, 2, kv_heads, block_size, row]`, contiguous, to write.
#[derive(Clone, Copy, Debug)]
pub struct CacheMut {
    /// The first element.
    pub data: *mut u8,
    /// What its rows hold.
    pub kind: CacheType,
    /// Blocks.
    pub num_blocks: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Tokens of a block.
    pub block_size: usize,
    /// Values of a head.
    pub head_dim: usize,
}

/// Stores keys and values `[tokens, kv_heads * head_dim]` at `slots[token]` = `block * block_size + offset`.
///
/// # Errors
/// A slot is not in the cache.
///
/// # Safety
/// Views and pointers hold what they say, no slot occurs twice, and nothing overlaps the cache.
///
/// # Panics
/// When `k` and `v` differ in rows.
pub unsafe fn write_kv(
    cpu: &Cpu,
    k: MatRef,
    v: MatRef,
    cache: CacheMut,
    slots: *const i64,
) -> Result<(), String> {
    assert_eq!(k.rows, v.rows, "write_kv: rows differ");
    let limit = cache.num_blocks * cache.block_size;
    for token in 0..k.rows {
        // SAFETY: there is a slot for each token.
        let slot = unsafe { *slots.add(token) };
        if slot < 0 || slot as usize >= limit {
            return Err(format!("write_kv: slot {slot} of token {token} is not below {limit}"));
        }
    }
    let shared = AssumeSync((cache, slots));
    over_rows(cpu, k.rows, 2 * cache.kv_heads * cache.head_dim, |tokens| {
        let (cache, slots) = shared.get();
        // SAFETY: the set is available; slots are in the cache and differ.
        unsafe { dispatch(cpu.isa, WriteKv { k, v, cache, slots, tokens }) }
    });
    Ok(())
}

struct WriteKv {
    k: MatRef,
    v: MatRef,
    cache: CacheMut,
    slots: *const i64,
    tokens: Range<usize>,
}

impl Kernel for WriteKv {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: F32x16>(self) {
        let Self { k, v, cache, slots, tokens } = self;
        let (dim, size) = (cache.head_dim, cache.block_size);
        for token in tokens {
            for head in 0..cache.kv_heads {
                for (index, from) in [k, v].into_iter().enumerate() {
                    // SAFETY: the slot was checked, so the row of `dim` elements lies in the cache.
                    unsafe {
                        let slot = *slots.add(token) as usize;
                        let row = ((slot / size * 2 + index) * cache.kv_heads + head) * size + slot % size;
                        let to = cache.data.add(row * cache.kind.row_bytes(dim));
                        match cache.kind {
                            CacheType::Float(dtype) => {
                                for i in (0..dim).step_by(LANES) {
                                    let count = LANES.min(dim - i);
                                    let x = load::<V>(from.dtype, from.row(token), head * dim + i, count);
                                    store(x, dtype, to, i, count);
                                }
                            }
                            CacheType::Int8 => write_bytes::<V>((from, token, head * dim), to, dim),
                        }
                    }
                }
            }
        }
    }
}

/// Rounds `dim` elements of a row from an index on to bytes, and appends their scale.
#[inline(always)]
unsafe fn write_bytes<V: F32x16>((from, token, first): (MatRef, usize, usize), to: *mut u8, dim: usize) {
    // SAFETY: the caller's: the elements are there, and room for as many bytes and a float.
    unsafe {
        let row = from.row(token);
        let scale = Scale::of::<V>(from.dtype, row, first, dim);
        for i in (0..dim).step_by(LANES) {
            let count = LANES.min(dim - i);
            let bytes = scale.round(load::<V>(from.dtype, row, first + i, count));
            std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), to.add(i), count);
        }
        to.add(dim).cast::<f32>().write_unaligned(scale.back);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Isa, Pool};

    fn cpus() -> Vec<Cpu> {
        Isa::available().into_iter().map(|isa| Cpu { isa, pool: Pool::new(2) }).collect()
    }

    fn table(rows: usize, dim: usize) -> Vec<f32> {
        let angle = |p: usize, i: usize| p as f32 * 0.7 / (i + 1) as f32;
        (0..rows)
            .flat_map(|p| {
                let (cos, sin) = (
                    (0..dim / 2).map(move |i| angle(p, i).cos()),
                    (0..dim / 2).map(move |i| angle(p, i).sin()),
                );
                cos.chain(sin)
            })
            .collect()
    }

    #[test]
    fn rotates_pairs_and_leaves_the_rest() {
        let (heads, head_dim, stride) = (3, 40, 150);
        let positions = [4i64, 0, 9, 9, 2];
        for (rotary_dim, interleaved) in [(40, false), (40, true), (36, false), (8, true)] {
            let cos_sin = table(10, rotary_dim);
            let before: Vec<f32> = (0..5 * stride).map(|i| (i % 23) as f32 - 11.0).collect();
            for cpu in cpus() {
                let mut x = before.clone();
                let rotation = Rotation {
                    positions: Ints::I64(positions.as_ptr()),
                    cos_sin: cos_sin.as_ptr(),
                    max_position: 10,
                    rotary_dim,
                    interleaved,
                };
                let view = MatMut { data: x.as_mut_ptr().cast(), dtype: DType::F32, rows: 5, stride };
                // SAFETY: five rows of three heads of 40, 150 apart.
                unsafe { rotary(&cpu, rotation, view, heads, head_dim) }.unwrap();
                let mut expected = before.clone();
                for (token, &position) in positions.iter().enumerate() {
                    for head in 0..heads {
                        for i in 0..rotary_dim / 2 {
                            let at = token * stride + head * head_dim;
                            let half = rotary_dim / 2;
                            let (a, b) = if interleaved {
                                (at + 2 * i, at + 2 * i + 1)
                            } else {
                                (at + i, at + half + i)
                            };
                            let row = position as usize * rotary_dim;
                            let (cos, sin) = (cos_sin[row + i], cos_sin[row + rotary_dim / 2 + i]);
                            expected[a] = before[a] * cos - before[b] * sin;
                            expected[b] = before[b] * cos + before[a] * sin;
                        }
                    }
                }
                assert_eq!(x, expected, "{} {rotary_dim} {interleaved}", cpu.isa);
            }
        }
    }

    #[test]
    fn a_position_beyond_the_table_is_refused() {
        let cpu = Cpu { isa: Isa::Scalar, pool: Pool::new(1) };
        let (cos_sin, mut x) = (table(4, 2), [1.0f32, 2.0]);
        let rotation = |positions: &[i32; 1]| Rotation {
            positions: Ints::I32(positions.as_ptr()),
            cos_sin: cos_sin.as_ptr(),
            max_position: 4,
            rotary_dim: 2,
            interleaved: false,
        };
        let view = MatMut { data: x.as_mut_ptr().cast(), dtype: DType::F32, rows: 1, stride: 2 };
        // SAFETY: one row of one head of two.
        let run = |positions| unsafe { rotary(&cpu, rotation(positions), view, 1, 2) };
        assert_eq!(run(&[4]).unwrap_err(), "rotary: position 4 is not below 4");
        assert!(run(&[3]).is_ok());
    }

    #[test]
    fn keys_and_values_go_to_their_slots_and_nowhere_else() {
        let (tokens, kv_heads, block_size, head_dim) = (3, 2, 4, 20);
        for cpu in cpus() {
            let k: Vec<f32> = (0..tokens * 40).map(|i| i as f32).collect();
            let v: Vec<f32> = k.iter().map(|x| -x).collect();
            let mut cache = vec![0x7fffu16; 5 * 2 * kv_heads * block_size * head_dim];
            let target = CacheMut {
                data: cache.as_mut_ptr().cast(),
                kind: CacheType::Float(DType::Bf16),
                num_blocks: 5,
                kv_heads,
                block_size,
                head_dim,
            };
            let view =
                |x: &[f32]| MatRef { data: x.as_ptr().cast(), dtype: DType::F32, rows: tokens, stride: 40 };
            let slots = [17i64, 0, 6];
            // SAFETY: three tokens of two heads of 20; the slots are distinct.
            unsafe { write_kv(&cpu, view(&k), view(&v), target, slots.as_ptr()) }.unwrap();
            let mut expected = vec![0x7fffu16; cache.len()];
            for (token, slot) in slots.into_iter().enumerate() {
                for head in 0..kv_heads {
                    for i in 0..head_dim {
                        for (index, x) in [&k, &v].into_iter().enumerate() {
                            let (block, offset) = (slot as usize / block_size, slot as usize % block_size);
                            let row = ((block * 2 + index) * kv_heads + head) * block_size + offset;
                            let x = x[token * 40 + head * head_dim + i];
                            expected[row * head_dim + i] = half::bf16::from_f32(x).to_bits();
                        }
                    }
                }
            }
            assert_eq!(cache, expected, "{}", cpu.isa);
            // SAFETY: the wrong slot is found before anything is written.
            let wrong = unsafe { write_kv(&cpu, view(&k), view(&v), target, [1i64, 20, 2].as_ptr()) };
            assert_eq!(wrong.unwrap_err(), "write_kv: slot 20 of token 1 is not below 20");
        }
    }

    #[test]
    fn keys_and_values_become_bytes_with_a_scale_for_each_token_and_head() {
        let (heads, dim, row) = (2, 20, 24);
        for cpu in cpus() {
            let mut k: Vec<f32> = (0..2 * heads * dim).map(|i| (i * 37 % 101) as f32 - 50.0).collect();
            k[20..40].fill(0.0);
            k[40] = f32::NAN;
            let v: Vec<f32> = k.iter().map(|x| x / 3.0).collect();
            let mut cache = vec![0x55u8; 3 * 2 * heads * 4 * row];
            let (data, kind) = (cache.as_mut_ptr(), CacheType::Int8);
            let target =
                CacheMut { data, kind, num_blocks: 3, kv_heads: heads, block_size: 4, head_dim: dim };
            let view = |x: &[f32]| MatRef { data: x.as_ptr().cast(), dtype: DType::F32, rows: 2, stride: 40 };
            // SAFETY: two tokens of two heads of 20; the slots are distinct.
            unsafe { write_kv(&cpu, view(&k), view(&v), target, [9i64, 2].as_ptr()) }.unwrap();
            for (token, (block, offset)) in [(2, 1), (0, 2)].into_iter().enumerate() {
                for (index, x) in [&k, &v].into_iter().enumerate() {
                    for head in 0..heads {
                        let x = &x[(token * heads + head) * dim..][..dim];
                        let at = (((block * 2 + index) * heads + head) * 4 + offset) * row;
                        let (bytes, scale) = cache[at..at + row].split_last_chunk::<4>().unwrap();
                        let scale = f32::from_ne_bytes(*scale);
                        let greatest = x.iter().fold(0.0f32, |most, x| most.max(x.abs()));
                        if x.iter().any(|x| x.is_nan()) {
                            assert!(scale.is_nan(), "{}", cpu.isa);
                            continue;
                        }
                        assert_eq!(scale, greatest / 127.0, "{}", cpu.isa);
                        for (x, q) in x.iter().zip(bytes) {
                            let wanted = (x * (127.0 / greatest)).round_ties_even() as i8;
                            assert_eq!(q.cast_signed(), wanted, "{} {x} of {greatest}", cpu.isa);
                        }
                    }
                }
            }
            let written = cache.chunks(row).filter(|row| row.iter().any(|&byte| byte != 0x55)).count();
            assert_eq!(written, 8, "{}", cpu.isa);
        }
    }
}
