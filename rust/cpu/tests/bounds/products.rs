//! Products of rows with weights: floats, bytes of one scale a row, GGUF blocks.

use super::inputs::{Fill, Random, TYPES, bytes_of, floats_of, view, view_mut};
use super::{ETA, U, assert_within, cpus, gamma, pow2};
use half::f16;
use octavo_cpu::linear::{PackedWeight, WeightRef, linear};
use octavo_cpu::quant::{Block, Format, Int8Weight, QuantizedWeight, int8_linear, quantized_linear};
use octavo_cpu::{DType, MatMut, MatRef};

/// Fills of inputs and of weights: each with each.
fn fills() -> impl Iterator<Item = (Fill, Fill)> {
    Fill::ALL.into_iter().flat_map(|x| Fill::ALL.map(|w| (x, w)))
}

/// Compares all elements with `expected(row, column)`, which gives the exact number and its bound.
fn compare(
    got: &[u8],
    dtype: DType,
    n: usize,
    expected: impl Fn(usize, usize) -> (f64, f64),
    what: impl Fn() -> String,
) {
    for (i, &y) in floats_of(got, dtype).iter().enumerate() {
        let (exact, bound) = expected(i / n, i % n);
        assert_within(y, exact, bound, dtype, || format!("{} [{}, {}]", what(), i / n, i % n));
    }
}

/// Runs `product` for one row and for many and gives both outputs.
fn outputs(
    x: &[u8],
    (x_type, k): (DType, usize),
    (out_type, n): (DType, usize),
    product: impl Fn(MatRef, MatMut),
) -> Vec<Vec<u8>> {
    let row = k * x_type.size();
    [&x[..row], x]
        .map(|x| {
            let mut out = vec![0xff; x.len() / row * n * out_type.size()];
            product(view(x, x_type, k), view_mut(&mut out, out_type, n));
            out
        })
        .into()
}

/// The page: `gamma(K + 1) (sum |x w| + |b|) + (K + 1) eta`.
#[test]
fn dense() {
    let cpus = cpus();
    for dtype in TYPES {
        for (n, k, rows) in [(1, 1, 2), (33, 7, 14), (19, 75, 5), (4, 2100, 13)] {
            for (fill, of_weight) in fills() {
                let x = fill.floats(rows * k, dtype, 1);
                let w = of_weight.floats(n * k, dtype, 2);
                let bias = fill.floats(n, DType::F32, 3);
                let expected: Vec<(f64, f64)> = (0..rows * n)
                    .map(|i| {
                        let (x, w) = (&x[i / n * k..][..k], &w[i % n * k..][..k]);
                        let terms = || x.iter().zip(w).map(|(&x, &w)| f64::from(x) * f64::from(w));
                        let bias = f64::from(bias[i % n]);
                        let size = terms().map(f64::abs).sum::<f64>() + bias.abs();
                        (terms().sum::<f64>() + bias, gamma(k + 1) * size + (k + 1) as f64 * ETA)
                    })
                    .collect();
                let (x, w) = (bytes_of(&x, dtype), bytes_of(&w, dtype));
                for cpu in &cpus {
                    let source = WeightRef { data: w.as_ptr(), dtype, n, k };
                    // SAFETY: the weight has n * k elements.
                    let packed = unsafe { PackedWeight::pack(&cpu.pool, source, Some(&bias)) };
                    for out_type in [DType::F32, dtype] {
                        // SAFETY: the views are of rows of k and n elements.
                        let product = |x, y| unsafe { linear(cpu, &packed, x, y) };
                        for got in outputs(&x, (dtype, k), (out_type, n), product) {
                            let what = || format!("{} {dtype:?} {n}x{k} {fill:?} {of_weight:?}", cpu.isa);
                            compare(&got, out_type, n, |r, c| expected[r * n + c], what);
                        }
                    }
                }
            }
        }
    }
}

/// By how much an input may change when it is rounded to 8 bits with the scale of `g`, the greatest of its group.
pub fn byte_error(g: f64) -> f64 {
    g * (1.0 / 254.0 + 4.0 * U) + pow2(-121)
}

fn greatest(x: &[f32]) -> f64 {
    x.iter().fold(0.0, |most, &x| f64::from(x.abs()).max(most))
}

/// The page: `|s| sum |w| (D + gamma(3) (|x| + D)) + gamma(3) |b| + 2^15 K eta`.
#[test]
fn int8() {
    let cpus = cpus();
    for dtype in TYPES {
        for (n, k, rows) in [(1, 1, 2), (33, 7, 14), (19, 75, 5), (4, 2100, 13)] {
            for (fill, of_scale) in fills() {
                let x = fill.floats(rows * k, dtype, 1);
                let mut random = Random(5);
                let w: Vec<i8> = (0..n * k).map(|_| random.next() as i8).collect();
                let (scale, bias) = (of_scale.floats(n, DType::F32, 2), fill.floats(n, DType::F32, 3));
                let expected: Vec<(f64, f64)> = (0..rows * n)
                    .map(|i| {
                        let (x, w) = (&x[i / n * k..][..k], &w[i % n * k..][..k]);
                        let off = byte_error(greatest(x));
                        let (scale, bias) = (f64::from(scale[i % n]), f64::from(bias[i % n]));
                        let mut sums = (0.0, 0.0);
                        for (x, w) in x.iter().map(|&x| f64::from(x)).zip(w.iter().map(|&w| f64::from(w))) {
                            sums.0 += x * w;
                            sums.1 += w.abs() * (off + gamma(3) * (x.abs() + off));
                        }
                        let bound = scale.abs() * sums.1 + gamma(3) * bias.abs() + pow2(15) * k as f64 * ETA;
                        (sums.0 * scale + bias, bound)
                    })
                    .collect();
                let x = bytes_of(&x, dtype);
                for cpu in &cpus {
                    let weight = Int8Weight::pack(&cpu.pool, &w, &scale, (n, k), Some(&bias)).unwrap();
                    for out_type in [DType::F32, dtype] {
                        // SAFETY: the views are of rows of k and n elements.
                        let product = |x, y| unsafe { int8_linear(cpu, &weight, x, y) };
                        for got in outputs(&x, (dtype, k), (out_type, n), product) {
                            let what = || format!("{} {dtype:?} {n}x{k} {fill:?} {of_scale:?}", cpu.isa);
                            compare(&got, out_type, n, |r, c| expected[r * n + c], what);
                        }
                    }
                }
            }
        }
    }
}

const FORMATS: [Format; 8] = [
    Format::Q4_0,
    Format::Q4_1,
    Format::Q5_0,
    Format::Q5_1,
    Format::Q8_0,
    Format::Q4K,
    Format::Q5K,
    Format::Q6K,
];

/// Random bits whose 16-bit floats are below 2: of either sign, some of them subnormal.
fn random_blocks(format: Format, blocks: usize) -> Vec<u8> {
    let mut random = Random(9);
    let floats: &[usize] = match format {
        Format::Q4_0 | Format::Q5_0 | Format::Q8_0 => &[0],
        Format::Q6K => &[208],
        _ => &[0, 2],
    };
    let mut bytes: Vec<u8> = (0..blocks * format.bytes()).map(|_| random.next() as u8).collect();
    for (i, block) in bytes.chunks_exact_mut(format.bytes()).enumerate() {
        for &at in floats {
            let bits = if i % 5 == 4 { 0x83ff } else { 0xbfff };
            let bits = u16::from_ne_bytes([block[at], block[at + 1]]) & bits;
            block[at..at + 2].copy_from_slice(&f16::from_bits(bits).to_le_bytes());
        }
    }
    bytes
}

/// Each weight, and `|scale q| + |min|`, which is what its products are made of.
fn decoded(format: Format, bytes: &[u8]) -> Vec<(f64, f64)> {
    let (mut out, mut block) = (Vec::new(), Block::default());
    for bytes in bytes.chunks_exact(format.bytes()) {
        format.decode(bytes, &mut block);
        for (i, &q) in block.q[..format.weights()].iter().enumerate() {
            let run = i / format.run();
            let product = f64::from(block.scale[run]) * f64::from(i32::from(q) - format.zero());
            let min = f64::from(block.min[run]);
            out.push((product + min, product.abs() + min.abs()));
        }
    }
    out
}

/// The page: `sum |w| D + gamma(R + 2) (sum (|s q| + |min|) (|x| + D) + |b|) + R 2^-127`, with `R` the multiply-adds
/// of an output.
#[test]
fn blocks() {
    let cpus = cpus();
    for format in FORMATS {
        let (n, k, rows) = (19, 768, 10);
        let bytes = random_blocks(format, n * k / format.weights());
        let weight = decoded(format, &bytes);
        let steps = k / format.run() * if format.has_min() { 2 } else { 1 };
        for (fill, dtype) in Fill::ALL.into_iter().flat_map(|fill| TYPES.map(|dtype| (fill, dtype))) {
            let x = fill.floats(rows * k, dtype, 1);
            let bias = fill.floats(n, DType::F32, 3);
            let expected: Vec<(f64, f64)> = (0..rows * n)
                .map(|i| {
                    let (x, w) = (&x[i / n * k..][..k], &weight[i % n * k..][..k]);
                    let bias = f64::from(bias[i % n]);
                    let (mut sum, mut rounded, mut size) = (bias, 0.0, bias.abs());
                    for (x, w) in x.chunks(32).zip(w.chunks(32)) {
                        let off = byte_error(greatest(x));
                        for (&x, (w, parts)) in x.iter().zip(w) {
                            sum += f64::from(x) * w;
                            rounded += w.abs() * off;
                            size += parts * (f64::from(x).abs() + off);
                        }
                    }
                    (sum, rounded + gamma(steps + 2) * size + steps as f64 * pow2(-127))
                })
                .collect();
            let x = bytes_of(&x, dtype);
            for cpu in &cpus {
                let packed = QuantizedWeight::pack(&cpu.pool, format, &bytes, (n, k), Some(&bias)).unwrap();
                // SAFETY: the views are of rows of k and n elements.
                let product = |x, y| unsafe { quantized_linear(cpu, &packed, x, y) };
                for got in outputs(&x, (dtype, k), (dtype, n), product) {
                    let what = || format!("{} {format:?} {fill:?} {dtype:?}", cpu.isa);
                    compare(&got, dtype, n, |r, c| expected[r * n + c], what);
                }
            }
        }
    }
}
