//! Every kernel against float64 on the same stored inputs, on every instruction set of this machine: the error is
//! within the bound that `docs/kernels.md` states. The bounds here are the page's formulas.

#![allow(clippy::unwrap_used)]

mod attention;
mod elementwise;
mod exponential;
mod inputs;
mod products;
mod sampling;

use octavo_cpu::{Cpu, DType, Isa, Pool};

/// `2^n`.
const fn pow2(n: i64) -> f64 {
    assert!(-1022 <= n && n <= 1023);
    f64::from_bits(((1023 + n) as u64) << 52)
}

/// The greatest relative error of one rounding to f32.
const U: f64 = pow2(-24);
/// The greatest absolute error of one rounding to f32 where the result is subnormal.
const ETA: f64 = pow2(-150);
/// The relative error of `exp`: 2 units in the last place.
const EXP: f64 = 4.0 * U;

/// `n` roundings in a row: `(1 + u)^n - 1` and `(1 - u)^-n - 1` are at most this (Higham, "Accuracy and Stability of
/// Numerical Algorithms", lemma 3.1).
fn gamma(n: usize) -> f64 {
    let n = n as f64 * U;
    n / (1.0 - n)
}

/// What the last rounding, to the type of the output, adds for a number of this size.
fn rounding(dtype: DType, size: f64) -> f64 {
    match dtype {
        DType::F32 => 0.0,
        DType::Bf16 => pow2(-8) * size + pow2(-134),
        DType::F16 => pow2(-11) * size + pow2(-25),
    }
}

/// Asserts that `got` is within `bound` of `exact`, and within what rounding to `dtype` adds.
///
/// # Panics
/// When it is not. Numbers that the type does not hold are passed over: bounds are for what does not overflow.
fn assert_within(got: f32, exact: f64, bound: f64, dtype: DType, what: impl Fn() -> String) {
    let size = exact.abs() + bound;
    let most = if dtype == DType::F16 { 65_504.0 } else { pow2(127) };
    if size + rounding(dtype, size) > most {
        return;
    }
    let error = (f64::from(got) - exact).abs();
    let bound = bound + rounding(dtype, size);
    assert!(error <= bound, "{}: {got:e} for {exact:e}, error {error:e} > {bound:e}", what());
}

fn cpus() -> Vec<Cpu> {
    Isa::available().into_iter().map(|isa| Cpu { isa, pool: Pool::new(2) }).collect()
}
