use super::*;
use crate::dtype::{Element, with_element};
use crate::{DType, Isa, Pool};

const F32: CacheType = CacheType::Float(DType::F32);
const BF16: CacheType = CacheType::Float(DType::Bf16);
const F16: CacheType = CacheType::Float(DType::F16);

fn random(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(747_796_405).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn encode(row: &[f32], kind: CacheType) -> Vec<u8> {
    match kind {
        CacheType::Float(dtype) => with_element!(dtype, T => row
            .iter()
            .flat_map(|&x| {
                let x = T::from_f32(x);
                // SAFETY: an element is as many bytes as its size.
                unsafe { std::slice::from_raw_parts((&raw const x).cast::<u8>(), size_of::<T>()) }.to_vec()
            })
            .collect()),
        CacheType::Int8 => {
            let greatest = row.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            let bytes =
                row.iter().map(|x| ((x * (127.0 / greatest)).round_ties_even() as i8).cast_unsigned());
            bytes.chain((greatest / 127.0).to_ne_bytes()).collect()
        }
    }
}

fn decode(row: &[u8], kind: CacheType) -> Vec<f64> {
    match kind {
        CacheType::Float(dtype) => with_element!(dtype, T => row
            .chunks_exact(size_of::<T>())
            // SAFETY: the chunk has the size of T.
            .map(|c| f64::from(unsafe { c.as_ptr().cast::<T>().read_unaligned() }.to_f32()))
            .collect()),
        CacheType::Int8 => {
            let (bytes, scale) = row.split_last_chunk().unwrap();
            let scale = f64::from(f32::from_ne_bytes(*scale));
            bytes.iter().map(|q| f64::from(q.cast_signed()) * scale).collect()
        }
    }
}

/// A model's shape and masks, and a cache with a few sequences in scattered blocks.
#[derive(Clone)]
struct World {
    heads: usize,
    kv_heads: usize,
    dim: usize,
    block_size: usize,
    kind: CacheType,
    window: Option<usize>,
    softcap: Option<f32>,
    cache: Vec<u8>,
    tables: Vec<Vec<i32>>,
    /// Queries of each sequence: `[len][heads * dim]`.
    queries: Vec<Vec<f32>>,
}

impl World {
    fn new(
        heads: usize,
        kv_heads: usize,
        dim: usize,
        block_size: usize,
        kind: CacheType,
        lens: &[usize],
    ) -> Self {
        let counts: Vec<usize> = lens.iter().map(|len| len.div_ceil(block_size)).collect();
        let blocks = counts.iter().sum::<usize>() + 1;
        let floats = random(blocks * 2 * kv_heads * block_size * dim, 7);
        let cache = floats.chunks(dim).flat_map(|row| encode(row, kind)).collect();
        // Blocks are dealt out from the end, one to each sequence in turn.
        let mut next = blocks as i32;
        let mut tables = vec![Vec::new(); lens.len()];
        for round in 0..counts.iter().copied().max().unwrap_or(0) {
            for (table, &count) in tables.iter_mut().zip(&counts) {
                if round < count {
                    next -= 1;
                    table.push(next);
                }
            }
        }
        let queries =
            lens.iter().enumerate().map(|(i, len)| random(len * heads * dim, 20 + i as u32)).collect();
        Self { heads, kv_heads, dim, block_size, kind, window: None, softcap: None, cache, tables, queries }
    }

    /// Runs rows of `(sequence, first position, end position)` and gives each row's output.
    fn run(&self, cpu: &Cpu, rows: &[(usize, usize, usize)]) -> Vec<Vec<f32>> {
        let width = self.heads * self.dim;
        let stride = self.tables.iter().map(Vec::len).max().unwrap() + 3;
        let (mut q, mut tables) = (Vec::new(), Vec::new());
        let (mut query_start, mut seq_lens) = (vec![0], Vec::new());
        for &(sequence, first, end) in rows {
            q.extend_from_slice(&self.queries[sequence][first * width..end * width]);
            query_start.push((q.len() / width) as i32);
            seq_lens.push(end as i32);
            let mut table = self.tables[sequence].clone();
            table.resize(stride, -1);
            tables.extend(table);
        }
        let tokens = q.len() / width;
        let mut out = vec![f32::NAN; q.len()];
        let call = Attention {
            q: MatRef { data: q.as_ptr().cast(), dtype: DType::F32, rows: tokens, stride: width },
            cache: self.cache.as_ptr(),
            cache_type: self.kind,
            num_blocks: self.cache.len()
                / (2 * self.kv_heads * self.block_size * self.kind.row_bytes(self.dim)),
            block_size: self.block_size,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.dim,
            query_start: &query_start,
            seq_lens: &seq_lens,
            block_tables: tables.as_ptr(),
            table_stride: stride,
            scale: 1.0 / (self.dim as f32).sqrt() * 3.0,
            window: self.window,
            softcap: self.softcap,
        };
        let to = MatMut { data: out.as_mut_ptr().cast(), dtype: DType::F32, rows: tokens, stride: width };
        // SAFETY: the fields describe the vectors.
        unsafe { attend(cpu, &call, to).unwrap() };
        let part =
            |r: usize| out[query_start[r] as usize * width..query_start[r + 1] as usize * width].to_vec();
        (0..rows.len()).map(part).collect()
    }

    fn cached(&self, sequence: usize, value: usize, head: usize, position: usize) -> Vec<f64> {
        let block = self.tables[sequence][position / self.block_size] as usize;
        let row = ((block * 2 + value) * self.kv_heads + head) * self.block_size + position % self.block_size;
        let size = self.kind.row_bytes(self.dim);
        decode(&self.cache[row * size..][..size], self.kind)
    }

    fn exact(&self, sequence: usize, position: usize, head: usize) -> Vec<f64> {
        let kv_head = head / (self.heads / self.kv_heads);
        let at = (position * self.heads + head) * self.dim;
        let q = &self.queries[sequence][at..at + self.dim];
        let first = self.window.map_or(0, |w| (position + 1).saturating_sub(w));
        let scale = f64::from(1.0 / (self.dim as f32).sqrt() * 3.0);
        let mut weights = Vec::new();
        for key in first..=position {
            let k = self.cached(sequence, 0, kv_head, key);
            let dot: f64 = q.iter().zip(&k).map(|(&q, k)| f64::from(q) * k).sum();
            let cap = |s: f64, c: f32| f64::from(c) * (s / f64::from(c)).tanh();
            weights.push(self.softcap.map_or(dot * scale, |c| cap(dot * scale, c)).exp());
        }
        let total: f64 = weights.iter().sum();
        let mut mixed = vec![0.0; self.dim];
        for (key, weight) in (first..).zip(&weights) {
            for (m, v) in mixed.iter_mut().zip(self.cached(sequence, 1, kv_head, key)) {
                *m += weight / total * v;
            }
        }
        mixed
    }
}

fn cpus() -> Vec<Cpu> {
    let cpu = |isa, threads| Cpu { isa, pool: Pool::new(threads) };
    let mut all: Vec<_> = Isa::available().into_iter().map(|isa| cpu(isa, 2)).collect();
    all.push(cpu(all[all.len() - 1].isa, 1));
    all
}

fn worlds() -> Vec<World> {
    let lens = [1, 64, 75, 290];
    let base = World::new(4, 2, 16, 16, F32, &lens);
    let mut all = vec![
        World { window: Some(40), ..base.clone() },
        World { softcap: Some(2.0), ..base.clone() },
        World { window: Some(300), softcap: Some(5.0), ..base.clone() },
        base,
        World::new(3, 1, 32, 16, BF16, &lens),
    ];
    let odd = [1, 9, 80];
    all.extend([
        World::new(4, 4, 16, 32, F16, &odd),
        World::new(2, 1, 80, 5, F32, &odd),
        World::new(3, 1, 24, 1, BF16, &odd),
        World::new(70, 1, 8, 16, F32, &odd),
        World::new(4, 2, 16, 16, CacheType::Int8, &lens),
        World::new(2, 1, 81, 5, CacheType::Int8, &odd),
    ]);
    all
}

/// Values are below 1, so the error of the weighted mean is bounded by that of the weights: dim + keys roundings of
/// scores below 3 sqrt(dim), and the exponential's.
#[test]
fn is_close_to_f64_in_prefill_and_decode() {
    let (all, cpus) = (worlds(), cpus());
    for world in &all {
        for sequence in 0..world.queries.len() {
            let len = world.queries[sequence].len() / (world.heads * world.dim);
            for first in [0, len - 1] {
                let got = world.run(&cpus[cpus.len() - 1], &[(sequence, first, len)]).remove(0);
                for position in (first..len).filter(|p| p % 13 == 0 || *p + 1 == len) {
                    for head in (0..world.heads).step_by(world.heads.min(5)) {
                        let exact = world.exact(sequence, position, head);
                        let at = ((position - first) * world.heads + head) * world.dim;
                        for (g, e) in got[at..].iter().zip(&exact) {
                            assert!(
                                (f64::from(*g) - e).abs() < 1e-5,
                                "{position} of {len}, head {head}: {g} {e}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn bits_depend_on_neither_batch_nor_chunks_nor_threads_nor_instruction_set() {
    for world in worlds() {
        let width = world.heads * world.dim;
        let lens: Vec<usize> = world.queries.iter().map(|q| q.len() / width).collect();
        let cpus = cpus();
        let whole: Vec<_> = lens.iter().enumerate().map(|(s, &len)| (s, 0, len)).collect();
        let expected = world.run(&cpus[0], &whole);
        for cpu in &cpus {
            assert!(world.run(cpu, &whole) == expected, "{}: all prompts at once", cpu.isa);
            for (sequence, &len) in lens.iter().enumerate() {
                let mut cuts = vec![0, 1, len / 3, len / 3 + 7, len - 1, len];
                cuts.retain(|&cut| cut <= len);
                cuts.sort_unstable();
                cuts.dedup();
                for cut in cuts.windows(2) {
                    let got = world.run(cpu, &[(sequence, cut[0], cut[1])]).remove(0);
                    let part = &expected[sequence][cut[0] * width..cut[1] * width];
                    assert!(got == part, "{}: sequence of {len} alone, tokens {cut:?}", cpu.isa);
                }
            }
            let decode: Vec<_> = lens.iter().enumerate().map(|(s, &len)| (s, len - 1, len)).collect();
            for (got, (expected, &len)) in world.run(cpu, &decode).iter().zip(expected.iter().zip(&lens)) {
                assert!(got[..] == expected[(len - 1) * width..], "{}: decode at {len}", cpu.isa);
            }
        }
    }
}

#[test]
fn contradictions_are_refused() {
    let cpu = Cpu { isa: Isa::Scalar, pool: Pool::new(1) };
    let mut world = World::new(2, 1, 16, 16, F32, &[20]);
    world.tables[0][1] = 99;
    let queries = world.queries[0].clone();
    let (starts, lens) = ([0, 20], [20]);
    let call = Attention {
        q: MatRef { data: queries.as_ptr().cast(), dtype: DType::F32, rows: 20, stride: 32 },
        cache: world.cache.as_ptr(),
        cache_type: F32,
        num_blocks: 3,
        block_size: 16,
        heads: 2,
        kv_heads: 1,
        head_dim: 16,
        query_start: &starts,
        seq_lens: &lens,
        block_tables: world.tables[0].as_ptr(),
        table_stride: 2,
        scale: 1.0,
        window: None,
        softcap: None,
    };
    let mut out = vec![0.0f32; queries.len()];
    let to = MatMut { data: out.as_mut_ptr().cast(), dtype: DType::F32, rows: 20, stride: 32 };
    // SAFETY: the fields describe the vectors; the wrong block is found before it is read.
    let error = |call: &Attention<'_>| unsafe { attend(&cpu, call, to) }.unwrap_err();
    assert_eq!(error(&call), "attention: row 0 names block 99 of 3");
    assert!(error(&Attention { seq_lens: &[19], ..call }).contains("20 new tokens in a sequence of 19"));
    assert!(error(&Attention { query_start: &[0], ..call }).contains("1 query starts for 1 rows"));
    assert!(error(&Attention { query_start: &[0, 21], seq_lens: &[21], ..call }).contains("of 20 tokens"));
    assert!(error(&Attention { window: Some(0), ..call }).contains("sees nothing"));
}
