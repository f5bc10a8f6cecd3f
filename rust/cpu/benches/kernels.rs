//! Speeds of the kernels beside the machine's limits: `cargo bench -p octavo-cpu [-- linear|...]`.
//!
//! Options by environment: `THREADS` (2), `OCTAVO_CPU_ISA`. Prints the best of several runs: other programs disturb
//! a run, nothing makes it faster.

#![allow(clippy::print_stdout, clippy::inline_always)]

use octavo_cpu::attention::{Attention, attend};
use octavo_cpu::linear::{PackedWeight, WeightRef, linear};
use octavo_cpu::quant::{Format, Int8Weight, QuantizedWeight, int8_linear, quantized_linear};
use octavo_cpu::simd::{F32x16, Kernel, dispatch};
use octavo_cpu::{Buffer, CacheType, Cpu, DType, Isa, MatMut, MatRef, Pool};
use std::hint::black_box;
use std::time::Instant;

fn main() {
    let chosen = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    let threads = std::env::var("THREADS").ok().and_then(|t| t.parse().ok()).unwrap_or(2);
    let sets = match std::env::var_os("OCTAVO_CPU_ISA") {
        Some(_) => vec![Isa::from_env().expect("an available instruction set")],
        None => Isa::available().into_iter().filter(|&isa| isa != Isa::Scalar).collect(),
    };
    for isa in sets {
        let cpu = Cpu { isa, pool: Pool::new(threads) };
        cpu.pool.bind(&(0..threads).collect::<Vec<_>>()).expect("cores 0 to THREADS - 1");
        println!("\n== {isa}, {threads} threads");
        let (bandwidth, flops) = limits(&cpu);
        if "linear".starts_with(&chosen) {
            linears(&cpu, bandwidth, flops);
        }
        if "quant".starts_with(&chosen) {
            quants(&cpu, bandwidth, flops);
        }
        if "int8".starts_with(&chosen) {
            int8s(&cpu, bandwidth, flops);
        }
        if "attention".starts_with(&chosen) {
            attentions(&cpu, bandwidth, flops);
        }
    }
}

/// Seconds of the fastest of about a third of a second of calls.
fn best(mut f: impl FnMut()) -> f64 {
    let (begin, mut least) = (Instant::now(), f64::INFINITY);
    while begin.elapsed().as_secs_f64() < 0.35 {
        let call = Instant::now();
        f();
        least = least.min(call.elapsed().as_secs_f64());
    }
    least
}

struct Read(*const f32, usize);
impl Kernel for Read {
    type Output = f32;
    #[inline(always)]
    unsafe fn run<V: F32x16>(self) -> f32 {
        // SAFETY: the caller passes a range of whole vectors.
        unsafe {
            let mut sums = [V::zero(); 4];
            for i in (0..self.1).step_by(64) {
                for (j, sum) in sums.iter_mut().enumerate() {
                    *sum = sum.add(V::load(self.0.add(i + 16 * j)));
                }
            }
            sums.into_iter().map(|v| v.sum()).sum()
        }
    }
}

struct Peak(f32);
impl Kernel for Peak {
    type Output = f32;
    #[inline(always)]
    unsafe fn run<V: F32x16>(self) -> f32 {
        // SAFETY: no pointers.
        unsafe {
            let (a, b) = (V::splat(self.0), V::splat(self.0 + 0.5));
            if V::TILE_ROWS > 6 {
                let mut c = [V::zero(); 12];
                for _ in 0..100_000 {
                    c = c.map(|c| a.fma(b, c));
                }
                c.into_iter().map(|v| v.sum()).sum()
            } else {
                let mut c = [V::zero(); 6];
                for _ in 0..200_000 {
                    c = c.map(|c| a.fma(b, c));
                }
                c.into_iter().map(|v| v.sum()).sum()
            }
        }
    }
}

/// Read bandwidth in GB/s of a buffer that no cache holds, and f32 multiply-add peak in GFLOP/s.
fn limits(cpu: &Cpu) -> (f64, f64) {
    let mut buffer = Buffer::zeroed(512 << 20);
    // SAFETY: the buffer's own bytes; writing makes the pages real.
    unsafe { buffer.as_mut_ptr().write_bytes(1, buffer.len()) };
    let (start, chunks) = (buffer.as_ptr() as usize, 512);
    let chunk = buffer.len() / chunks;
    let seconds = best(|| {
        cpu.pool.run(chunks, |i, _| {
            let from = (start + i * chunk) as *const f32;
            // SAFETY: the set is available and the range lies in the buffer.
            black_box(unsafe { dispatch(cpu.isa, Read(from, chunk / 4)) });
        });
    });
    let bandwidth = buffer.len() as f64 / seconds / 1e9;
    let threads = cpu.pool.threads();
    let seconds = best(|| {
        cpu.pool.run(threads, |_, _| {
            // SAFETY: the set is available.
            black_box(unsafe { dispatch(cpu.isa, Peak(black_box(1.0))) });
        });
    });
    let flops = (threads * 1_200_000 * 32) as f64 / seconds / 1e9;
    println!("limits: read {bandwidth:.1} GB/s, f32 multiply-add {flops:.0} GFLOP/s");
    (bandwidth, flops)
}

/// Enough copies of the weight that no cache holds them all are used in turn.
fn linears(cpu: &Cpu, bandwidth: f64, flops: f64) {
    for dtype in [DType::F32, DType::Bf16, DType::F16] {
        for (k, n) in [(576, 576), (576, 1536), (576, 49152), (1536, 576)] {
            let bytes = n * k * dtype.size();
            let copies = ((192 << 20) / bytes).max(1);
            let source = vec![0u8; bytes];
            let w = WeightRef { data: source.as_ptr(), dtype, n, k };
            // SAFETY: the source has n * k elements.
            let packed: Vec<_> =
                (0..copies).map(|_| unsafe { PackedWeight::pack(&cpu.pool, w, None) }).collect();
            print!("linear {dtype:?} K={k} N={n}:");
            for rows in [1, 4, 16, 64, 256] {
                let x = vec![1.0f32; rows * k];
                let mut y = vec![0.0f32; rows * n];
                let x = MatRef { data: x.as_ptr().cast(), dtype: DType::F32, rows, stride: k };
                let y = MatMut { data: y.as_mut_ptr().cast(), dtype: DType::F32, rows, stride: n };
                let used = &packed[..if rows > 16 { 1 } else { copies }];
                // SAFETY: the shapes are as the views say.
                let seconds =
                    best(|| used.iter().for_each(|w| unsafe { linear(cpu, w, x, y) })) / used.len() as f64;
                let rate = 2.0 * (rows * n * k) as f64 / seconds / 1e9;
                if rows == 1 {
                    let read = bytes as f64 / seconds / 1e9;
                    print!(" M=1 {read:.1} GB/s ({:.0} %)", 100.0 * read / bandwidth);
                } else {
                    print!(", M={rows} {rate:.0} GF ({:.0} %)", 100.0 * rate / flops);
                }
            }
            println!();
        }
    }
}

/// A few rows of new tokens at the end of sequences of equal length; 9 heads of 64 over 3 KV heads.
fn attentions(cpu: &Cpu, bandwidth: f64, flops: f64) {
    const BLOCK: usize = 16;
    let (heads, kv_heads, head_dim) = (9, 3, 64);
    for cache_type in [CacheType::Float(DType::F32), CacheType::Float(DType::Bf16), CacheType::Int8] {
        for (rows, new, len) in [(1, 1, 1024), (32, 1, 1024), (1, 1024, 1024), (1, 512, 4096)] {
            let blocks = len / BLOCK;
            let bytes = rows * blocks * 2 * kv_heads * BLOCK * cache_type.row_bytes(head_dim);
            let copies = (128 << 20) / bytes + 1;
            let cache = vec![0u8; bytes * copies];
            let tables: Vec<i32> = (0..(rows * blocks * copies) as i32).collect();
            let query_start: Vec<i32> = (0..=rows).map(|r| (r * new) as i32).collect();
            let (seq_lens, q) = (vec![len as i32; rows], vec![0.5f32; rows * new * heads * head_dim]);
            let (mut out, width) = (q.clone(), heads * head_dim);
            let to =
                MatMut { data: out.as_mut_ptr().cast(), dtype: DType::F32, rows: rows * new, stride: width };
            let mut turn = 0;
            let seconds = best(|| {
                turn = (turn + 1) % copies;
                let call = Attention {
                    q: MatRef { data: q.as_ptr().cast(), dtype: DType::F32, rows: rows * new, stride: width },
                    cache: cache.as_ptr(),
                    cache_type,
                    num_blocks: rows * blocks * copies,
                    block_size: BLOCK,
                    heads,
                    kv_heads,
                    head_dim,
                    query_start: &query_start,
                    seq_lens: &seq_lens,
                    block_tables: tables[turn * rows * blocks..].as_ptr(),
                    table_stride: blocks,
                    scale: 0.125,
                    window: None,
                    softcap: None,
                };
                // SAFETY: the fields describe the vectors.
                unsafe { attend(cpu, &call, to) }.expect("a consistent call");
            });
            let keys = (0..new).map(|i| len - new + i + 1).sum::<usize>() * rows;
            let (read, rate) = (bytes as f64 / seconds / 1e9, 4.0 * (keys * width) as f64 / seconds / 1e9);
            println!(
                "attention {cache_type:?} {rows} rows of {new} in {len}: {:.0} us, {read:.1} GB/s ({:.0} %), {rate:.0} GF ({:.0} %)",
                seconds * 1e6,
                100.0 * read / bandwidth,
                100.0 * rate / flops
            );
        }
    }
}

/// GGUF weights: bytes are those of the file, rates are in multiply-adds of the product.
fn quants(cpu: &Cpu, bandwidth: f64, flops: f64) {
    for format in [Format::Q8_0, Format::Q4_1, Format::Q4K, Format::Q6K] {
        for (k, n) in [(768, 1536), (768, 49152), (1536, 576)] {
            let bytes = n * k / format.weights() * format.bytes();
            let copies = ((160 << 20) / bytes).max(1);
            let source = vec![0u8; bytes];
            let pack =
                || QuantizedWeight::pack(&cpu.pool, format, &source, (n, k), None).expect("whole blocks");
            let packed: Vec<_> = (0..copies).map(|_| pack()).collect();
            let bits = packed[0].size_bytes() as f64 * 8.0 / (n * k) as f64;
            print!("{format:?} ({bits:.2} bits a weight) K={k} N={n}:");
            for rows in [1, 4, 16, 64, 256] {
                let x = vec![1.0f32; rows * k];
                let mut y = vec![0.0f32; rows * n];
                let x = MatRef { data: x.as_ptr().cast(), dtype: DType::F32, rows, stride: k };
                let y = MatMut { data: y.as_mut_ptr().cast(), dtype: DType::F32, rows, stride: n };
                let used = &packed[..if rows > 16 { 1 } else { copies }];
                // SAFETY: the shapes are as the views say.
                let run = || used.iter().for_each(|w| unsafe { quantized_linear(cpu, w, x, y) });
                let seconds = best(run) / used.len() as f64;
                let rate = 2.0 * (rows * n * k) as f64 / seconds / 1e9;
                if rows == 1 {
                    let read = bytes as f64 / seconds / 1e9;
                    print!(" M=1 {read:.1} GB/s ({:.0} %)", 100.0 * read / bandwidth);
                } else {
                    print!(", M={rows} {rate:.0} GOP/s ({:.1} x f32)", rate / flops);
                }
            }
            println!();
        }
    }
}

/// Weights and rows of 8 bits.
fn int8s(cpu: &Cpu, bandwidth: f64, flops: f64) {
    for (k, n) in [(576, 1536), (2048, 2048), (4096, 4096)] {
        let copies = ((160 << 20) / (n * k)).max(1);
        let (source, scale) = (vec![1i8; n * k], vec![1.0f32; n]);
        let pack = || Int8Weight::pack(&cpu.pool, &source, &scale, (n, k), None).expect("lengths that fit");
        let packed: Vec<_> = (0..copies).map(|_| pack()).collect();
        print!("int8 K={k} N={n}:");
        for rows in [1, 4, 16, 64, 256] {
            let (x, mut y) = (vec![1.0f32; rows * k], vec![0.0f32; rows * n]);
            let x = MatRef { data: x.as_ptr().cast(), dtype: DType::F32, rows, stride: k };
            let y = MatMut { data: y.as_mut_ptr().cast(), dtype: DType::F32, rows, stride: n };
            let used = &packed[..if rows > 16 { 1 } else { copies }];
            // SAFETY: the shapes are as the views say.
            let run = || used.iter().for_each(|w| unsafe { int8_linear(cpu, w, x, y) });
            let seconds = best(run) / used.len() as f64;
            let rate = 2.0 * (rows * n * k) as f64 / seconds / 1e9;
            if rows == 1 {
                let read = (n * k) as f64 / seconds / 1e9;
                print!(" M=1 {read:.1} GB/s ({:.0} %)", 100.0 * read / bandwidth);
            } else {
                print!(", M={rows} {rate:.0} GOP/s ({:.1} x f32)", rate / flops);
            }
        }
        println!();
    }
}
