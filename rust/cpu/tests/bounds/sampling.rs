//! Probabilities: where draws change from one token to the next, and log-probabilities.

use super::inputs::{Fill, Random};
use super::{EXP, U, cpus, gamma, pow2};
use octavo_cpu::sampling::{DrawRows, LogprobsOut, draw, token_logprobs};
use octavo_cpu::{Cpu, DType, MatRef};

const VOCABULARIES: [usize; 4] = [1, 17, 300, 5003];

/// Rows of logits: roughly normal ones, all alike, a few far above the rest, and wide, tiny and zero ones.
fn logits(vocab: usize) -> Vec<(String, Vec<f32>)> {
    let mut random = Random(3);
    let mut normal = || 10.0 * (random.signed() + random.signed() + random.signed());
    let plain: Vec<f32> = (0..vocab).map(|_| normal()).collect();
    let peaked =
        plain.iter().enumerate().map(|(i, x)| if i % 97 == 3 { 900.0 + x } else { x - 95.0 }).collect();
    let mut all = vec![("normal".into(), plain), ("peaked".into(), peaked)];
    all.extend(Fill::ALL.into_iter().map(|fill| (format!("{fill:?}"), fill.floats(vocab, DType::F16, 5))));
    all
}

fn draw_each(cpu: &Cpu, row: &[f32], temperature: f32, uniform: &[f64]) -> Vec<i64> {
    let n = uniform.len();
    let (temperature, top_k, top_p, min_p) = (vec![temperature; n], vec![0; n], vec![1.0; n], vec![0.0; n]);
    let mut tokens = vec![-1; n];
    let call = DrawRows {
        temperature: temperature.as_ptr(),
        top_k: top_k.as_ptr(),
        top_p: top_p.as_ptr(),
        min_p: min_p.as_ptr(),
        uniform: uniform.as_ptr(),
        tokens: tokens.as_mut_ptr(),
    };
    // Every row is the same one.
    let x = MatRef { data: row.as_ptr().cast(), dtype: DType::F32, rows: n, stride: 0 };
    // SAFETY: the vectors have an element for each row.
    unsafe { draw(cpu, x, row.len(), call) };
    tokens
}

/// The page: a random number at least `2 r / (1 - r)` away from where exact arithmetic passes from one token to the
/// next draws the same token as it.
#[test]
fn draws_change_where_cumulative_probabilities_say() {
    for cpu in cpus() {
        for (vocab, temperature) in VOCABULARIES.into_iter().flat_map(|v| [0.3f32, 1.0, 2.5].map(|t| (v, t)))
        {
            for (name, row) in logits(vocab) {
                let scaled: Vec<f64> = row.iter().map(|&x| f64::from(x) / f64::from(temperature)).collect();
                let most = scaled.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
                let total: f64 = scaled.iter().map(|x| (x - most).exp()).sum();
                // The mean of the errors of the tokens' probabilities.
                let of_tokens: f64 = scaled
                    .iter()
                    .map(|x| {
                        let exponent = 2.0 * U * (x.abs() + most.abs()) * (1.0 + 2.0 * U);
                        ((exponent.exp() * (1.0 + EXP) - 1.0) * (x - most).exp() + pow2(-125)) / total
                    })
                    .sum();
                let r = (1.0 + of_tokens) * (1.0 + gamma(20)) * (1.0 + vocab as f64 * pow2(-53)) - 1.0;
                let away = 2.0 * r / (1.0 - r);
                assert!(away < 1e-2, "the bound says little: {away}");
                let (mut uniform, mut wanted, mut below) = (Vec::new(), Vec::new(), 0.0);
                for (token, x) in scaled.iter().enumerate() {
                    let above = below + (x - most).exp() / total;
                    // Not all of a large vocabulary: emulators are slow.
                    let tried = vocab < 100 || token % 37 == 3 || token % 97 == 3 || above - below > 0.01;
                    if tried && above - below > 2.0 * away {
                        let ends = [below + away, above - away].map(|u| u.clamp(1e-12, 1.0 - 1e-12));
                        uniform.extend(ends);
                        wanted.extend([token as i64; 2]);
                    }
                    below = above;
                }
                assert!(!wanted.is_empty(), "{vocab} {name}: no token to draw");
                let got = draw_each(&cpu, &row, temperature, &uniform);
                assert!(got == wanted, "{} {vocab} {temperature} {name}", cpu.isa);
            }
        }
    }
}

/// The page: `2 u |logprob| + 113 u + 2 u ln(vocab) + vocab 2^-125`, rounded up in the function's own words.
#[test]
fn log_probabilities() {
    for cpu in cpus() {
        for vocab in VOCABULARIES {
            for (name, row) in logits(vocab) {
                let n = vocab.min(50);
                let tokens: Vec<i64> = (0..n as i64).collect();
                let (mut logprob, mut rank) = (vec![0.0f32; n], vec![0; n]);
                let (mut top_id, mut top_logprob) = (vec![-1; n], vec![0.0f32; n]);
                let out = LogprobsOut {
                    logprob: logprob.as_mut_ptr(),
                    rank: rank.as_mut_ptr(),
                    top_id: top_id.as_mut_ptr(),
                    top_logprob: top_logprob.as_mut_ptr(),
                    k: 1,
                };
                let x = MatRef { data: row.as_ptr().cast(), dtype: DType::F32, rows: n, stride: 0 };
                // SAFETY: the vectors have an element for each row.
                unsafe { token_logprobs(&cpu, x, vocab, tokens.as_ptr(), out) }.unwrap();
                let most = row.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
                let log_sum = row.iter().map(|&x| f64::from(x - most).exp()).sum::<f64>().ln();
                for (&x, &got) in row.iter().zip(&logprob) {
                    let exact = f64::from(x) - f64::from(most) - log_sum;
                    let bound = 2.0 * U * exact.abs()
                        + 113.0 * U
                        + 2.0 * U * (vocab as f64).ln()
                        + vocab as f64 * pow2(-125);
                    let error = (f64::from(got) - exact).abs();
                    assert!(error <= bound, "{} {vocab} {name}: {got} for {exact}", cpu.isa);
                }
            }
        }
    }
}
