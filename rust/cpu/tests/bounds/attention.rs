//! Attention over caches of every type, and what the caches keep.

use super::inputs::{Fill, bytes_of, floats_of, view, view_mut};
use super::products::byte_error;
use super::{ETA, U, assert_within, cpus, gamma, pow2, rounding};
use octavo_cpu::attention::{Attention, attend};
use octavo_cpu::rope::{CacheMut, write_kv};
use octavo_cpu::{CacheType, Cpu, DType};

const CACHES: [CacheType; 4] = [
    CacheType::Float(DType::F32),
    CacheType::Float(DType::Bf16),
    CacheType::Float(DType::F16),
    CacheType::Int8,
];

/// Kinds of queries, keys and values.
const FILLS: [[Fill; 3]; 7] = [
    [Fill::Plain, Fill::Plain, Fill::Plain],
    // Every key weighs the same, and their values cancel.
    [Fill::Zeros, Fill::Plain, Fill::Alternating],
    // Scores cancel.
    [Fill::Alternating, Fill::Steady, Fill::Steady],
    // Scores reach far beyond what the exponential tells apart.
    [Fill::Wide, Fill::Plain, Fill::Plain],
    [Fill::Steady, Fill::Wide, Fill::Wide],
    [Fill::Tiny, Fill::Tiny, Fill::Tiny],
    [Fill::Plain, Fill::Zeros, Fill::Zeros],
];

/// One sequence of `len` tokens in blocks that lie backwards, one KV head.
struct Sequence {
    cache: Vec<u8>,
    kind: CacheType,
    block_size: usize,
    len: usize,
    dim: usize,
}

impl Sequence {
    /// Writes keys and values `[len][dim]` as the server does.
    fn new(cpu: &Cpu, kind: CacheType, (len, dim): (usize, usize), k: &[f32], v: &[f32]) -> Self {
        let block_size = 16;
        let blocks = len.div_ceil(block_size);
        let mut cache = vec![0; blocks * 2 * block_size * kind.row_bytes(dim)];
        let data = cache.as_mut_ptr();
        let to = CacheMut { data, kind, num_blocks: blocks, kv_heads: 1, block_size, head_dim: dim };
        let slots: Vec<i64> =
            (0..len).map(|p| ((blocks - 1 - p / block_size) * block_size + p % block_size) as i64).collect();
        let (k, v) = (bytes_of(k, DType::F32), bytes_of(v, DType::F32));
        let rows = |x| view(x, DType::F32, dim);
        // SAFETY: `len` rows of `dim`, and as many slots, all different.
        unsafe { write_kv(cpu, rows(&k), rows(&v), to, slots.as_ptr()) }.unwrap();
        Self { cache, kind, block_size, len, dim }
    }

    /// The key (0) or value (1) that is kept of a position.
    fn stored(&self, index: usize, position: usize) -> Vec<f64> {
        let block = self.len.div_ceil(self.block_size) - 1 - position / self.block_size;
        let size = self.kind.row_bytes(self.dim);
        let row = (block * 2 + index) * self.block_size + position % self.block_size;
        let row = &self.cache[row * size..][..size];
        match self.kind {
            CacheType::Float(dtype) => floats_of(row, dtype).into_iter().map(f64::from).collect(),
            CacheType::Int8 => {
                let (bytes, scale) = row.split_last_chunk().unwrap();
                let scale = f64::from(f32::from_ne_bytes(*scale));
                bytes.iter().map(|q| f64::from(q.cast_signed()) * scale).collect()
            }
        }
    }
}

/// What scores are made of.
#[derive(Clone, Copy, Debug)]
struct Masks {
    scale: f32,
    window: Option<usize>,
    softcap: Option<f32>,
}

const MASKS: [Masks; 4] = [
    Masks { scale: 0.25, window: None, softcap: None },
    Masks { scale: 40.0, window: None, softcap: None },
    Masks { scale: 0.25, window: Some(70), softcap: Some(2.0) },
    Masks { scale: 1.0, window: Some(300), softcap: Some(50.0) },
];

/// Runs the last `tokens` tokens with `heads` query heads.
fn run(
    cpu: &Cpu,
    s: &Sequence,
    q: &[f32],
    heads: usize,
    tokens: usize,
    masks: Masks,
    out: DType,
) -> Vec<f32> {
    let width = heads * s.dim;
    let table: Vec<i32> = (0..s.len.div_ceil(s.block_size) as i32).rev().collect();
    let q = bytes_of(&q[(s.len - tokens) * width..], DType::F32);
    let mut y = vec![0xff; tokens * width * out.size()];
    let call = Attention {
        q: view(&q, DType::F32, width),
        cache: s.cache.as_ptr(),
        cache_type: s.kind,
        num_blocks: table.len(),
        block_size: s.block_size,
        heads,
        kv_heads: 1,
        head_dim: s.dim,
        query_start: &[0, tokens as i32],
        seq_lens: &[s.len as i32],
        block_tables: table.as_ptr(),
        table_stride: table.len(),
        scale: masks.scale,
        window: masks.window,
        softcap: masks.softcap,
    };
    // SAFETY: the fields describe the vectors.
    unsafe { attend(cpu, &call, view_mut(&mut y, out, width)) }.unwrap();
    floats_of(&y, out)
}

/// The output of one query in exact arithmetic, and the page's bound for each of its values.
fn exact(s: &Sequence, q: &[f32], position: usize, masks: Masks) -> Vec<(f64, f64)> {
    let first = masks.window.map_or(0, |window| (position + 1).saturating_sub(window));
    let keys = first..position + 1;
    let (mut scores, mut errors) = (Vec::new(), Vec::new());
    for key in keys.clone() {
        let k = s.stored(0, key);
        let terms = || q.iter().zip(&k).map(|(&q, k)| f64::from(q) * k * f64::from(masks.scale));
        let (score, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
        let error = gamma(s.dim + 2) * size + pow2(-100);
        let (score, error) = masks.softcap.map_or((score, error), |cap| {
            let cap = f64::from(cap);
            (cap * (score / cap).tanh(), error + gamma(1) * size + 7.0 * U * cap)
        });
        scores.push(score);
        errors.push(error);
    }
    let most = scores.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
    let worst = errors.iter().fold(0.0f64, |a, &b| a.max(b));
    let sections = keys.end.div_ceil(256) - keys.start / 256;
    let steps = gamma(keys.len().min(256) + 6 * sections + 20);
    let total: f64 = scores.iter().map(|s| (s - most).exp()).sum();
    let weights: Vec<f64> = scores.iter().map(|s| (s - most).exp() / total).collect();
    let relative: Vec<f64> = scores
        .iter()
        .zip(&errors)
        .map(|(s, e)| (e + U * (most - s + 2.0 * worst)).exp() * (1.0 + steps) - 1.0)
        .collect();
    let of_sum: f64 = weights.iter().zip(&relative).map(|(w, r)| w * r).sum();
    assert!(of_sum < 1.0, "the bound says nothing: {of_sum}");
    let values: Vec<Vec<f64>> = keys.clone().map(|key| s.stored(1, key)).collect();
    (0..s.dim)
        .map(|i| {
            let (mut y, mut error, mut size) = (0.0, 0.0, 0.0f64);
            for ((w, r), v) in weights.iter().zip(&relative).zip(&values) {
                y += w * v[i];
                error += w * r * v[i].abs();
                size = size.max(v[i].abs());
            }
            let tiny = keys.len() as f64 * (pow2(-124) * size + 2.0 * ETA);
            (y, (error + of_sum * y.abs()) / (1.0 - of_sum) + tiny)
        })
        .collect()
}

#[test]
fn decode_and_prefill() {
    let (cpus, heads) = (cpus(), 3);
    for kind in CACHES {
        for [of_q, of_k, of_v] in FILLS {
            let floats = |fill: Fill, count, seed| fill.floats(count, range(fill, kind), seed);
            for (len, dim) in [(1, 8), (75, 40), (600, 16)] {
                let queries = floats(of_q, len * heads * dim, 1);
                let (k, v) = (floats(of_k, len * dim, 2), floats(of_v, len * dim, 3));
                let s = Sequence::new(&cpus[0], kind, (len, dim), &k, &v);
                for masks in MASKS {
                    let tokens = len.min(30);
                    let positions = (len - tokens..len).filter(|p| p % 13 == 0 || p + 1 == len);
                    let expected: Vec<(usize, Vec<(f64, f64)>)> = positions
                        .flat_map(|p| (0..heads).map(move |h| (p, h)))
                        .map(|(p, h)| {
                            (p * heads + h, exact(&s, &queries[(p * heads + h) * dim..][..dim], p, masks))
                        })
                        .collect();
                    for cpu in &cpus {
                        for (tokens, out) in [(1, DType::Bf16), (tokens, DType::F32)] {
                            let y = run(cpu, &s, &queries, heads, tokens, masks, out);
                            for (row, expected) in &expected {
                                let Some(row) = row.checked_sub((len - tokens) * heads) else { continue };
                                for (&y, &(exact, bound)) in y[row * dim..].iter().zip(expected) {
                                    assert_within(y, exact, bound, out, || {
                                        format!(
                                            "{} {kind:?} {of_q:?} {of_k:?} {of_v:?} {len}x{dim} {masks:?}, {tokens}, {row}",
                                            cpu.isa
                                        )
                                    });
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The type whose range numbers have: wide ones of f32 would make scores of 2^20, for which the bound says nothing.
fn range(fill: Fill, kind: CacheType) -> DType {
    if fill == Fill::Wide || kind == CacheType::Float(DType::F16) { DType::F16 } else { DType::F32 }
}

/// Floats are rounded once; bytes are off by at most `D`.
#[test]
fn caches_keep_what_the_page_says() {
    let (len, dim) = (9, 40);
    for cpu in cpus() {
        for kind in CACHES {
            for fill in Fill::ALL {
                let (k, v) = (fill.floats(len * dim, DType::F32, 1), fill.floats(len * dim, DType::F32, 2));
                let s = Sequence::new(&cpu, kind, (len, dim), &k, &v);
                for (index, from) in [k, v].iter().enumerate() {
                    for (position, x) in from.chunks(dim).enumerate() {
                        let greatest = x.iter().fold(0.0f64, |most, &x| most.max(f64::from(x.abs())));
                        for (&x, stored) in x.iter().zip(s.stored(index, position)) {
                            let x = f64::from(x);
                            let bound = match kind {
                                CacheType::Float(dtype) => rounding(dtype, x.abs()),
                                CacheType::Int8 => byte_error(greatest),
                            };
                            let most = if kind == CacheType::Float(DType::F16) { 65_504.0 } else { f64::MAX };
                            assert!(
                                x.abs() > most || (stored - x).abs() <= bound,
                                "{} {kind:?} {fill:?}: {x:e} is kept as {stored:e}",
                                cpu.isa
                            );
                        }
                    }
                }
            }
        }
    }
}
