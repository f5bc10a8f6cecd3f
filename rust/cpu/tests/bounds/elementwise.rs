//! Norms, gates and rotations.

use super::inputs::{Fill, TYPES, bytes_of, floats_of, view, view_mut};
use super::{ETA, U, assert_within, cpus, gamma, pow2};
use octavo_cpu::elementwise::{Ints, VecRef, gelu_and_mul, rms_norm, silu_and_mul};
use octavo_cpu::rope::{Rotation, rotary};
use octavo_cpu::{Cpu, DType, MatMut, MatRef};

/// The page: `gamma(ceil(n / 32) + 8) |y| + (1 + |w|) eta`; the sum with the residual `u |x + r|` and one rounding.
#[test]
fn norm() {
    for cpu in cpus() {
        for dtype in TYPES {
            for (fill, eps) in Fill::ALL.into_iter().flat_map(|fill| [(fill, 1e-5f32), (fill, 1e-12)]) {
                for (n, rows) in [(1, 3), (15, 2), (100, 33), (5000, 2)] {
                    let x = fill.floats(rows * n, dtype, 1);
                    let residual = Fill::Plain.floats(rows * n, dtype, 2);
                    let w = Fill::Wide.floats(n, dtype, 3);
                    let (from, weight) = (bytes_of(&x, dtype), bytes_of(&w, dtype));
                    let weight = VecRef { data: weight.as_ptr(), dtype, len: n };
                    let (mut sums, mut out) = (bytes_of(&residual, dtype), vec![0xff; from.len()]);
                    for with_residual in [false, true] {
                        let to = view_mut(&mut out, dtype, n);
                        let add = with_residual.then(|| view_mut(&mut sums, dtype, n));
                        // SAFETY: rows of n elements, as the views say.
                        unsafe { rms_norm(&cpu, view(&from, dtype, n), add, weight, eps, to) };
                        let what = || format!("{} {dtype:?} {n} {fill:?} {eps} {with_residual}", cpu.isa);
                        let normalised = if with_residual { floats_of(&sums, dtype) } else { x.clone() };
                        if with_residual {
                            for ((&sum, &x), &r) in normalised.iter().zip(&x).zip(&residual) {
                                let exact = f64::from(x) + f64::from(r);
                                assert_within(sum, exact, U * exact.abs(), dtype, what);
                            }
                        }
                        let got = floats_of(&out, dtype);
                        for (x, y) in normalised.chunks(n).zip(got.chunks(n)) {
                            let mean = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / n as f64;
                            let scale = 1.0 / (mean + f64::from(eps)).sqrt();
                            for ((&x, &w), &y) in x.iter().zip(&w).zip(y) {
                                let w = f64::from(w);
                                let exact = f64::from(x) * scale * w;
                                let bound = gamma(n.div_ceil(32) + 8) * exact.abs() + (1.0 + w.abs()) * ETA;
                                assert_within(y, exact, bound, dtype, what);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Gates from far below to far above where the exponential ends, and those of each fill.
fn gates(dtype: DType) -> Vec<f32> {
    let steps = (-1000..1000).map(|i| i as f32 / 8.0);
    let mut all: Vec<f32> = steps.chain([1e4, -1e4, 6e4, -6e4, 1e-30, -1e-30]).collect();
    if dtype != DType::F16 {
        all.extend([1e15, -1e15, 3e20, -3e20]);
    }
    all.extend(Fill::ALL.into_iter().flat_map(|fill| fill.floats(100, dtype, 4)));
    floats_of(&bytes_of(&all, dtype), dtype)
}

/// Compares `op` with `gate(x) up`, where `gate` gives a number and the factor of its relative error.
fn assert_gate(op: unsafe fn(&Cpu, MatRef, usize, MatMut), gate: impl Fn(f64) -> (f64, f64)) {
    for cpu in cpus() {
        for dtype in TYPES {
            let gates = gates(dtype);
            for fill in Fill::ALL {
                let n = gates.len();
                let ups = fill.floats(n, dtype, 2);
                // One row, and many of them.
                for rows in [1, 9] {
                    let x: Vec<f32> = (0..rows).flat_map(|_| gates.iter().chain(&ups).copied()).collect();
                    let x = bytes_of(&x, dtype);
                    let mut out = vec![0xff; x.len() / 2];
                    // SAFETY: rows of 2 n and n elements, as the views say.
                    unsafe { op(&cpu, view(&x, dtype, 2 * n), n, view_mut(&mut out, dtype, n)) };
                    for row in floats_of(&out, dtype).chunks(n) {
                        for ((&x, &up), &y) in gates.iter().zip(&ups).zip(row) {
                            let (x, up) = (f64::from(x), f64::from(up));
                            let (gated, relative) = gate(x);
                            let exact = gated * up;
                            let beyond = (x.abs() * pow2(-126) + ETA) * up.abs() + ETA;
                            let what = || format!("{} {dtype:?} gate {x:e} times {up:e}", cpu.isa);
                            assert_within(y, exact, relative * exact.abs() + beyond, dtype, what);
                        }
                    }
                }
            }
        }
    }
}

/// The page: `gamma(8) |y| + (|x| 2^-126 + eta) |up| + eta`.
#[test]
fn silu() {
    assert_gate(silu_and_mul, |x| (x / (1.0 + (-x).exp()), gamma(8)));
}

/// The page: the same with `gamma(8 + 8 min(|z|, 88))`, where the gate is `x / (1 + e^-z)`.
#[test]
fn gelu() {
    assert_gate(gelu_and_mul, |x| {
        let z = 2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
        (x / (1.0 + (-z).exp()), gamma(8 + (8.0 * z.abs().min(88.0)).ceil() as usize))
    });
}

/// The page: `gamma(2) (|a cos| + |b sin|) + 2 eta`.
#[test]
fn rotation() {
    let (heads, head_dim, tokens, rotary_dim) = (2, 40, 11, 36);
    let table = Fill::Plain.floats(tokens * rotary_dim, DType::F32, 7);
    let positions: Vec<i32> = (0..tokens as i32).rev().collect();
    for cpu in cpus() {
        for (dtype, fill) in TYPES.into_iter().flat_map(|dtype| Fill::ALL.map(|fill| (dtype, fill))) {
            for interleaved in [false, true] {
                let x = fill.floats(tokens * heads * head_dim, dtype, 1);
                let mut rotated = bytes_of(&x, dtype);
                let turn = Rotation {
                    positions: Ints::I32(positions.as_ptr()),
                    cos_sin: table.as_ptr(),
                    max_position: tokens,
                    rotary_dim,
                    interleaved,
                };
                let to = view_mut(&mut rotated, dtype, heads * head_dim);
                // SAFETY: eleven rows of two heads of 40.
                unsafe { rotary(&cpu, turn, to, heads, head_dim) }.unwrap();
                let rotated = floats_of(&rotated, dtype);
                for (row, (x, y)) in x.chunks(head_dim).zip(rotated.chunks(head_dim)).enumerate() {
                    let turn = &table[positions[row / heads] as usize * rotary_dim..][..rotary_dim];
                    for i in 0..rotary_dim / 2 {
                        let half = rotary_dim / 2;
                        let (at, other) = if interleaved { (2 * i, 2 * i + 1) } else { (i, half + i) };
                        let (a, b) = (f64::from(x[at]), f64::from(x[other]));
                        let (cos, sin) = (f64::from(turn[i]), f64::from(turn[half + i]));
                        let what = || format!("{} {dtype:?} {fill:?} row {row}, pair {i}", cpu.isa);
                        let bound = |p: f64, q: f64| gamma(2) * (p.abs() + q.abs()) + 2.0 * ETA;
                        assert_within(y[at], a * cos - b * sin, bound(a * cos, b * sin), dtype, what);
                        assert_within(y[other], b * cos + a * sin, bound(b * cos, a * sin), dtype, what);
                    }
                    assert_eq!(x[rotary_dim..], y[rotary_dim..]);
                }
            }
        }
    }
}
