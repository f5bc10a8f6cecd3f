//! Runs a kernel so many times on one thread, for a profiler that counts instructions: `make budgets`.
//!
//!     count KERNEL RUNS       (KERNEL: linear/f32/1, quant/q4_k/8, attention/bf16/decode, ...)

#![allow(clippy::print_stderr)]

use std::process::ExitCode;

use octavo_cpu::attention::{Attention, attend};
use octavo_cpu::linear::{PackedWeight, WeightRef, linear};
use octavo_cpu::quant::{Format, QuantizedWeight, quantized_linear};
use octavo_cpu::sampling::greedy;
use octavo_cpu::{CacheType, Cpu, DType, Isa, MatMut, MatRef, Pool};

/// Inputs and outputs of a product: those of SmolLM2-135M's gate.
const WIDTH: (usize, usize) = (768, 1536);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let [_, kernel, runs] = args.as_slice() else {
        eprintln!("usage: count KERNEL RUNS");
        return ExitCode::from(2);
    };
    let cpu = match Isa::from_env() {
        Ok(isa) => Cpu { isa, pool: Pool::new(1) },
        Err(error) => {
            eprintln!("count: {error}");
            return ExitCode::from(2);
        }
    };
    match (runs.parse(), kernel.split('/').collect::<Vec<_>>().as_slice()) {
        (Ok(runs), ["linear", dtype, rows]) => products(&cpu, dtype, rows, runs),
        (Ok(runs), ["quant", format, rows]) => quantized(&cpu, format, rows, runs),
        (Ok(runs), ["attention", dtype, phase]) => attention(&cpu, dtype, phase, runs),
        (Ok(runs), ["greedy"]) => {
            samples(&cpu, runs);
            Some(())
        }
        _ => None,
    }
    .map_or_else(
        || {
            eprintln!("count: {kernel} {runs}: no such kernel, or no number of runs");
            ExitCode::from(2)
        },
        |()| ExitCode::SUCCESS,
    )
}

fn dtype(name: &str) -> Option<DType> {
    match name {
        "f32" => Some(DType::F32),
        "bf16" => Some(DType::Bf16),
        "f16" => Some(DType::F16),
        _ => None,
    }
}

/// A matrix of `rows` rows for a product's input or output.
fn view(data: &mut [f32], rows: usize) -> (MatRef, MatMut) {
    let stride = data.len() / rows;
    (
        MatRef { data: data.as_ptr().cast(), dtype: DType::F32, rows, stride },
        MatMut { data: data.as_mut_ptr().cast(), dtype: DType::F32, rows, stride },
    )
}

fn products(cpu: &Cpu, name: &str, rows: &str, runs: usize) -> Option<()> {
    let (dtype, rows) = (dtype(name)?, rows.parse::<usize>().ok()?);
    let (k, n) = WIDTH;
    let source = vec![0u8; n * k * dtype.size()];
    // SAFETY: the source has n * k elements.
    let weight =
        unsafe { PackedWeight::pack(&cpu.pool, WeightRef { data: source.as_ptr(), dtype, n, k }, None) };
    let (mut x, mut y) = (vec![1.0; rows * k], vec![0.0; rows * n]);
    let (x, y) = (view(&mut x, rows).0, view(&mut y, rows).1);
    // SAFETY: the shapes are as the views say.
    (0..runs).for_each(|_| unsafe { linear(cpu, &weight, x, y) });
    Some(())
}

fn quantized(cpu: &Cpu, name: &str, rows: &str, runs: usize) -> Option<()> {
    let format = match name {
        "q4_0" => Format::Q4_0,
        "q4_1" => Format::Q4_1,
        "q8_0" => Format::Q8_0,
        "q4_k" => Format::Q4K,
        "q6_k" => Format::Q6K,
        _ => return None,
    };
    let rows = rows.parse::<usize>().ok()?;
    let (k, n) = WIDTH;
    let source = vec![0u8; n * k / format.weights() * format.bytes()];
    let weight = QuantizedWeight::pack(&cpu.pool, format, &source, (n, k), None).ok()?;
    let (mut x, mut y) = (vec![1.0; rows * k], vec![0.0; rows * n]);
    let (x, y) = (view(&mut x, rows).0, view(&mut y, rows).1);
    // SAFETY: the shapes are as the views say.
    (0..runs).for_each(|_| unsafe { quantized_linear(cpu, &weight, x, y) });
    Some(())
}

/// 9 heads of 64 over 3 KV heads in blocks of 16: 8 sequences that decode after 1,024 tokens, or a prompt of 256.
fn attention(cpu: &Cpu, name: &str, phase: &str, runs: usize) -> Option<()> {
    const BLOCK: usize = 16;
    let (heads, kv_heads, head_dim) = (9, 3, 64);
    let cache_type = match name {
        "int8" => CacheType::Int8,
        _ => CacheType::Float(dtype(name)?),
    };
    let (rows, new, len) = match phase {
        "decode" => (8, 1, 1024),
        "prefill" => (1, 256, 256),
        _ => return None,
    };
    let blocks = len / BLOCK;
    let cache = vec![0u8; rows * blocks * 2 * kv_heads * BLOCK * cache_type.row_bytes(head_dim)];
    let tables: Vec<i32> = (0..(rows * blocks) as i32).collect();
    let query_start: Vec<i32> = (0..=rows).map(|row| (row * new) as i32).collect();
    let seq_lens = vec![len as i32; rows];
    let (mut q, mut out) =
        (vec![0.5; rows * new * heads * head_dim], vec![0.0; rows * new * heads * head_dim]);
    let call = Attention {
        q: view(&mut q, rows * new).0,
        cache: cache.as_ptr(),
        cache_type,
        num_blocks: rows * blocks,
        block_size: BLOCK,
        heads,
        kv_heads,
        head_dim,
        query_start: &query_start,
        seq_lens: &seq_lens,
        block_tables: tables.as_ptr(),
        table_stride: blocks,
        scale: 0.125,
        window: None,
        softcap: None,
    };
    let to = view(&mut out, rows * new).1;
    // SAFETY: the fields describe the vectors.
    (0..runs).try_for_each(|_| unsafe { attend(cpu, &call, to) }.ok())
}

/// The best of 49,152 logits for each of 8 rows.
fn samples(cpu: &Cpu, runs: usize) {
    let (rows, vocab) = (8, 49_152);
    let mut logits = vec![0.0; rows * vocab];
    let (mut values, mut tokens) = (vec![0.0; rows], vec![0; rows]);
    let logits = view(&mut logits, rows).0;
    // SAFETY: the logits have rows of `vocab`, and there is a place for each row's answer.
    (0..runs).for_each(|_| unsafe { greedy(cpu, logits, vocab, values.as_mut_ptr(), tokens.as_mut_ptr()) });
}
