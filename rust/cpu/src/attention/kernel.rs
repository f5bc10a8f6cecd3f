//! One section of keys for the queries of one item.

use super::{Attention, Item, KEYS, SECTION, StateLayout, first_visible};
use crate::CacheType;
use crate::cache::{Floats, Row, ScaledBytes};
use crate::dtype::with_element;
use crate::simd::{F32x16, Kernel, LANES};
use crate::tile::{MAX_ROWS, Sums, tile_of};

/// Column panels of 16 that a head takes, in whole pairs.
fn panels(call: &Attention<'_>) -> usize {
    call.head_dim.div_ceil(2 * LANES) * 2
}

/// Bytes that [`Piece`] works in: queries as tiles, keys and values as panels.
pub fn scratch_bytes(call: &Attention<'_>, item: &Item) -> usize {
    let rows = item.tokens * call.heads / call.kv_heads;
    (rows * call.head_dim + KEYS * call.head_dim + KEYS * panels(call) * LANES + LANES) * size_of::<f32>()
}

/// The scores of a tile of rows.
type Scores = [[f32; KEYS]; MAX_ROWS];

/// Computes the state of one section.
pub struct Piece<'a> {
    pub call: &'a Attention<'a>,
    pub item: Item,
    pub section: usize,
    pub layout: StateLayout,
    /// Whether the queries are yet to be packed into `work`.
    pub pack: bool,
    /// Where the state goes.
    pub state: *mut f32,
    /// Room for `scratch_bytes`.
    pub work: *mut f32,
}

impl Kernel for Piece<'_> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: F32x16>(self) {
        // SAFETY: the caller's, by the fields' meaning.
        unsafe {
            self.clear();
            if self.pack {
                self.pack_queries::<V>();
            }
            let mut scores: Scores = [[0.0; KEYS]; MAX_ROWS];
            let last = self.item.position + self.item.tokens;
            let begin = (self.section * SECTION).max(first_visible(self.call, self.item.position));
            let end = last.min((self.section + 1) * SECTION);
            let mut key = begin / KEYS * KEYS;
            while key < end {
                let seen = (begin.max(key) - key, end.min(key + KEYS) - key);
                match self.call.cache_type {
                    CacheType::Float(dtype) => {
                        with_element!(dtype, T => self.gather::<V, Floats<T>>(key, seen));
                    }
                    CacheType::Int8 => self.gather::<V, ScaledBytes>(key, seen),
                }
                self.step::<V>(key, seen, &mut scores);
                key += KEYS;
            }
        }
    }
}

impl Piece<'_> {
    fn keys(&self) -> *mut f32 {
        self.work.wrapping_add((self.layout.rows * self.call.head_dim).next_multiple_of(LANES))
    }

    fn values(&self) -> *mut f32 {
        self.keys().wrapping_add(KEYS * self.call.head_dim)
    }

    fn tiles<V: F32x16>(&self) -> impl Iterator<Item = (usize, usize)> + use<V> {
        let (total, count) = (self.layout.rows, self.layout.rows.div_ceil(V::TILE_ROWS));
        (0..count).map(move |i| (total * i / count, total * (i + 1) / count - total * i / count))
    }

    #[inline(always)]
    unsafe fn clear(&self) {
        // SAFETY: the state has the layout's floats.
        unsafe {
            self.state.write_bytes(0, self.layout.floats());
            for row in 0..self.layout.rows {
                *self.layout.greatest(self.state, row) = f32::NEG_INFINITY;
            }
        }
    }

    /// Queries as register tiles `[head_dim][rows of the tile]`.
    #[inline(always)]
    unsafe fn pack_queries<V: F32x16>(&self) {
        let (call, item) = (self.call, &self.item);
        let (group, dim) = (call.heads / call.kv_heads, call.head_dim);
        for (first, rows) in self.tiles::<V>() {
            for row in 0..rows {
                let (token, head) = ((first + row) / group, item.kv_head * group + (first + row) % group);
                // SAFETY: token and head are in the call's queries; the tile has its place in the work space.
                with_element!(call.q.dtype, T => unsafe {
                    let from = call.q.row(item.first_token + token).cast::<T>().add(head * dim);
                    let to = self.work.add(first * dim + row);
                    let mut lanes = [0.0f32; LANES];
                    for start in (0..dim).step_by(LANES) {
                        let count = LANES.min(dim - start);
                        V::load_some(from.add(start), count).store(lanes.as_mut_ptr());
                        for (i, &x) in lanes[..count].iter().enumerate() {
                            *to.add((start + i) * rows) = x;
                        }
                    }
                });
            }
        }
    }

    /// Keys `key + seen` as panels `[16 keys][head_dim][16]`, values as panels `[16 columns][key][16]`.
    #[inline(always)]
    unsafe fn gather<V: F32x16, R: Row>(&self, key: usize, seen: (usize, usize)) {
        let call = self.call;
        let (dim, size) = (call.head_dim, call.block_size);
        let bytes = call.cache_type.row_bytes(dim);
        // Bytes of one head's block, and from a key to its value.
        let (head, value) = (size * bytes, call.kv_heads * size * bytes);
        let (keys, values) = (self.keys(), self.values());
        // SAFETY: `check` has seen that the table names blocks of the cache for every visible position.
        unsafe {
            let table = call.block_tables.add(self.item.row * call.table_stride);
            for group in (seen.0 / LANES * LANES..seen.1).step_by(LANES) {
                let mut rows: [*const u8; LANES] = [std::ptr::null(); LANES];
                for (lane, row) in rows.iter_mut().enumerate() {
                    let at = group + lane;
                    if at >= seen.0 && at < seen.1 {
                        let block = *table.add((key + at) / size) as usize;
                        let offset = self.item.kv_head * head + (key + at) % size * bytes;
                        *row = call.cache.add(block * 2 * value + offset);
                    }
                }
                for start in (0..dim).step_by(LANES) {
                    let count = LANES.min(dim - start);
                    let mut lanes = [V::zero(); LANES];
                    for (lane, row) in lanes.iter_mut().zip(rows) {
                        if !row.is_null() {
                            *lane = R::load(row, dim, start, count);
                        }
                    }
                    V::transpose(&mut lanes);
                    for (i, lane) in lanes[..count].iter().enumerate() {
                        lane.store(keys.add((group * dim) + (start + i) * LANES));
                    }
                    for (lane, row) in rows.into_iter().enumerate().filter(|(_, row)| !row.is_null()) {
                        let to = values.add((start / LANES * KEYS + group + lane) * LANES);
                        R::load::<V>(row.add(value), dim, start, count).store(to);
                    }
                }
            }
        }
    }

    /// Scores, softmax step and mixing for `KEYS` keys from `key` on, of which `seen` are gathered.
    #[inline(always)]
    unsafe fn step<V: F32x16>(&self, key: usize, seen: (usize, usize), scores: &mut Scores) {
        let (dim, layout) = (self.call.head_dim, self.layout);
        let mut sums: Sums = [[0.0; 2 * LANES]; MAX_ROWS];
        for (first, rows) in self.tiles::<V>() {
            // SAFETY: queries, keys, values and state lie where `pack_queries`, `gather` and the layout say.
            unsafe {
                for pair in (seen.0 / (2 * LANES) * 2 * LANES..seen.1).step_by(2 * LANES) {
                    let q = self.work.add(first * dim);
                    let b = self.keys().cast_const().add(pair * dim);
                    tile_of::<V, f32, 1, 1>(rows, q, [b, b.add(LANES * dim)], dim, &mut sums, true);
                    for (scores, sums) in scores[..rows].iter_mut().zip(&sums) {
                        scores[pair..pair + 2 * LANES].copy_from_slice(sums);
                    }
                }
                let mut any = false;
                for (row, scores) in scores[..rows].iter_mut().enumerate() {
                    any |= self.soften::<V>(key, first + row, scores);
                }
                if !any {
                    continue;
                }
                for pair in 0..layout.pairs {
                    let b = self.values().cast_const().add((pair * 2 * KEYS + seen.0) * LANES);
                    let p = scores.as_ptr().cast::<f32>().add(seen.0);
                    let b = [b, b.add(KEYS * LANES)];
                    let mixed = &mut *layout.mixed(self.state, pair, first).cast::<Sums>();
                    tile_of::<V, f32, 1, KEYS>(rows, p, b, seen.1 - seen.0, mixed, false);
                }
            }
        }
    }

    /// Turns a row's scores into weights and updates its greatest score and its sum. Returns whether the row sees any
    /// of the keys.
    #[inline(always)]
    unsafe fn soften<V: F32x16>(&self, key: usize, row: usize, scores: &mut [f32; KEYS]) -> bool {
        let call = self.call;
        let position = self.item.position + row / (call.heads / call.kv_heads);
        let first = first_visible(call, position).max(key) - key;
        let end = (position + 1).min(key + KEYS).saturating_sub(key);
        if first >= end {
            *scores = [0.0; KEYS];
            return false;
        }
        // SAFETY: the vectors lie within the scores; the state has this row.
        unsafe {
            let lowest = V::splat(f32::NEG_INFINITY);
            let (scale, from) = (V::splat(call.scale), scores.as_mut_ptr());
            let mut most = lowest;
            for start in (0..KEYS).step_by(LANES) {
                let mut s = V::load(from.add(start)).mul(scale);
                if let Some(cap) = call.softcap {
                    s = tanh(s.div(V::splat(cap))).mul(V::splat(cap));
                }
                let lanes = (first.saturating_sub(start), end.saturating_sub(start));
                s = s.select(lanes.0, lanes.1, lowest);
                s.store(from.add(start));
                most = most.max(s);
            }
            let old = *self.layout.greatest(self.state, row);
            let now = most.greatest();
            let most = if old > now { old } else { now };
            if most != old {
                *self.layout.greatest(self.state, row) = most;
                if old != f32::NEG_INFINITY {
                    self.layout.scale(self.state, row, V::splat(old - most).exp());
                }
            }
            let mut sum = V::load(self.layout.sum(self.state, row));
            for start in (0..KEYS).step_by(LANES) {
                let p = V::load(from.add(start)).sub(V::splat(most)).exp();
                let lanes = (first.saturating_sub(start), end.saturating_sub(start));
                let p = p.select(lanes.0, lanes.1, V::zero());
                sum = sum.add(p);
                p.store(from.add(start));
            }
            sum.store(self.layout.sum(self.state, row));
        }
        true
    }
}

/// `1 - 2 / (e^2x + 1)`; the absolute error is below 6 * 2^-24.
#[inline(always)]
unsafe fn tanh<V: F32x16>(x: V) -> V {
    // SAFETY: the caller has V's instruction set.
    unsafe { V::splat(1.0).sub(V::splat(2.0).div(x.add(x).exp().add(V::splat(1.0)))) }
}
