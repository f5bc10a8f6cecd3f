use super::*;
use crate::{Isa, Pool};

fn cpus() -> Vec<Cpu> {
    Isa::available().into_iter().map(|isa| Cpu { isa, pool: Pool::new(2) }).collect()
}

fn random(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(747_796_405).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    // The sum of a few is roughly normal, as logits are; rounding makes ties.
    (0..count).map(|_| ((next() + next() + next() + next()) * 40.0).round() / 8.0).collect()
}

fn view(x: &[f32], vocab: usize) -> MatRef {
    MatRef { data: x.as_ptr().cast(), dtype: DType::F32, rows: x.len() / vocab, stride: vocab }
}

fn run_greedy(cpu: &Cpu, x: &[f32], vocab: usize) -> (Vec<f32>, Vec<i64>) {
    let rows = x.len() / vocab;
    let (mut values, mut tokens) = (vec![0.0; rows], vec![-1; rows]);
    // SAFETY: the vectors have an element for each row.
    unsafe { greedy(cpu, view(x, vocab), vocab, values.as_mut_ptr(), tokens.as_mut_ptr()) };
    (values, tokens)
}

#[test]
fn greedy_takes_the_first_of_the_greatest() {
    for cpu in cpus() {
        for vocab in [1, 15, 16, 257, 1000, 5003] {
            let x = random(9 * vocab, 3);
            let (values, tokens) = run_greedy(&cpu, &x, vocab);
            for (r, row) in x.chunks(vocab).enumerate() {
                let best = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let first = row.iter().position(|&v| v == best).unwrap();
                assert_eq!((values[r], tokens[r]), (best, first as i64), "{} {vocab}", cpu.isa);
            }
        }
    }
}

#[test]
fn greedy_shows_what_is_not_finite() {
    for cpu in cpus() {
        let mut x = vec![1.0; 700];
        x[650] = f32::NAN;
        x[3] = f32::INFINITY;
        let (values, tokens) = run_greedy(&cpu, &x, 700);
        assert!(values[0].is_nan() && tokens[0] == 650, "{values:?} {tokens:?}");
        x[650] = 0.0;
        assert_eq!(run_greedy(&cpu, &x, 700), (vec![f32::INFINITY], vec![3]));
        assert_eq!(run_greedy(&cpu, &[f32::NEG_INFINITY; 20], 20), (vec![f32::NEG_INFINITY], vec![0]));
    }
}

type Found = (Vec<f32>, Vec<i32>, Vec<i32>, Vec<f32>);

fn run_logprobs(cpu: &Cpu, x: &[f32], vocab: usize, tokens: &[i64], k: usize) -> Result<Found, String> {
    let rows = tokens.len();
    let (mut logprob, mut rank) = (vec![0.0; rows], vec![0; rows]);
    let (mut top_id, mut top_logprob) = (vec![-1; rows * k], vec![0.0; rows * k]);
    let out = LogprobsOut {
        logprob: logprob.as_mut_ptr(),
        rank: rank.as_mut_ptr(),
        top_id: top_id.as_mut_ptr(),
        top_logprob: top_logprob.as_mut_ptr(),
        k,
    };
    // SAFETY: the vectors have room for each row.
    unsafe { token_logprobs(cpu, view(x, vocab), vocab, tokens.as_ptr(), out)? };
    Ok((logprob, rank, top_id, top_logprob))
}

#[test]
fn logprobs_ranks_and_best_match_a_sort() {
    for (vocab, k) in [(1, 1), (20, 0), (20, 20), (1000, 7), (3001, 300)] {
        let x = random(5 * vocab, 8);
        let tokens: Vec<i64> = (0..5).map(|r| (r * 7919 % vocab) as i64).collect();
        let mut first = None;
        for cpu in cpus() {
            let found = run_logprobs(&cpu, &x, vocab, &tokens, k).unwrap();
            for (r, row) in x.chunks(vocab).enumerate() {
                let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let sum: f64 = row.iter().map(|&v| f64::from(v - most).exp()).sum();
                let exact = |v: f32| f64::from(v - most) - sum.ln();
                let value = row[tokens[r] as usize];
                assert!((f64::from(found.0[r]) - exact(value)).abs() < 1e-5, "{} {vocab}", cpu.isa);
                assert_eq!(found.1[r] as usize, row.iter().filter(|&&v| v > value).count() + 1);
                let mut ids: Vec<usize> = (0..vocab).collect();
                ids.sort_by(|&a, &b| row[b].total_cmp(&row[a]).then(a.cmp(&b)));
                for (i, &id) in ids[..k].iter().enumerate() {
                    assert_eq!(found.2[r * k + i] as usize, id, "{} {vocab} {k}: best {i}", cpu.isa);
                    assert!((f64::from(found.3[r * k + i]) - exact(row[id])).abs() < 1e-5);
                }
            }
            assert!(*first.get_or_insert(found.clone()) == found, "{}: same bits", cpu.isa);
        }
    }
    let message = run_logprobs(&cpus()[0], &[0.0; 4], 4, &[4], 1).unwrap_err();
    assert_eq!(message, "token_logprobs: token 4 of row 0 is not below 4");
}

#[derive(Clone, Copy)]
struct Draw {
    temperature: f32,
    top_k: i32,
    top_p: f32,
    min_p: f32,
    uniform: f64,
}

fn run_draw(cpu: &Cpu, x: &[f32], vocab: usize, rows: &[Draw]) -> Vec<i64> {
    let column = |f: fn(&Draw) -> f32| rows.iter().map(f).collect::<Vec<_>>();
    let (temperature, top_p, min_p) = (column(|d| d.temperature), column(|d| d.top_p), column(|d| d.min_p));
    let top_k: Vec<i32> = rows.iter().map(|d| d.top_k).collect();
    let uniform: Vec<f64> = rows.iter().map(|d| d.uniform).collect();
    let mut tokens = vec![-1; rows.len()];
    let call = DrawRows {
        temperature: temperature.as_ptr(),
        top_k: top_k.as_ptr(),
        top_p: top_p.as_ptr(),
        min_p: min_p.as_ptr(),
        uniform: uniform.as_ptr(),
        tokens: tokens.as_mut_ptr(),
    };
    // SAFETY: the vectors have an element for each row.
    unsafe { draw(cpu, view(x, vocab), vocab, call) };
    tokens
}

/// The definition, by sorting, in f64.
fn slow_draw(row: &[f32], d: Draw) -> (usize, f64) {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max) / d.temperature;
    let probs: Vec<f64> = row.iter().map(|&x| f64::from(x / d.temperature - most).exp()).collect();
    let mut sorted: Vec<f64> = probs.iter().copied().filter(|&p| p >= f64::from(d.min_p)).collect();
    sorted.sort_by(|a, b| b.total_cmp(a));
    if d.top_k > 0 && (d.top_k as usize) < sorted.len() {
        let least = sorted[d.top_k as usize - 1];
        sorted.retain(|&p| p >= least);
    }
    if d.top_p < 1.0 {
        let (wanted, mut mass) = (f64::from(d.top_p) * sorted.iter().sum::<f64>(), 0.0);
        let last = sorted.iter().position(|p| {
            mass += p;
            mass >= wanted * (1.0 - 1e-9)
        });
        let least = sorted[last.unwrap()];
        sorted.retain(|&p| p >= least);
    }
    let (floor, total) = (sorted[sorted.len() - 1] * (1.0 - 1e-9), sorted.iter().sum::<f64>());
    let mut sum = 0.0;
    let mut nearest = f64::INFINITY;
    let mut token = None;
    for (i, &p) in probs.iter().enumerate().filter(|(_, p)| **p >= floor) {
        sum += p;
        nearest = nearest.min((sum / total - d.uniform).abs());
        if token.is_none() && sum > d.uniform * total {
            token = Some(i);
        }
    }
    (token.unwrap(), nearest)
}

#[test]
fn draws_match_the_definition_and_do_not_depend_on_the_batch() {
    let cpus = cpus();
    for vocab in [1, 40, 1000, 4099] {
        let mut rows = Vec::new();
        for (i, temperature) in [0.3f32, 1.0, 2.5].into_iter().enumerate() {
            for top_k in [0, 1, 5, 50, 2000, 100_000] {
                for (top_p, min_p) in [(1.0, 0.0), (0.9, 0.0), (0.05, 0.0), (1.0, 0.2), (0.7, 0.02)] {
                    let uniform = (rows.len() as f64 * 0.618 + 0.01 + i as f64 * 0.1).fract();
                    rows.push(Draw { temperature, top_k, top_p, min_p, uniform });
                }
            }
        }
        let x = random(rows.len() * vocab, 11);
        let tokens = run_draw(&cpus[0], &x, vocab, &rows);
        let mut compared = 0;
        for ((row, &d), &token) in x.chunks(vocab).zip(&rows).zip(&tokens) {
            let (expected, nearest) = slow_draw(row, d);
            // Where the random number falls on a boundary, rounding decides.
            if nearest > 1e-5 {
                assert_eq!(token as usize, expected, "k {} p {} min {}", d.top_k, d.top_p, d.min_p);
                compared += 1;
            }
        }
        assert!(compared * 10 >= rows.len() * 8, "{compared} of {}", rows.len());
        for cpu in &cpus {
            assert_eq!(run_draw(cpu, &x, vocab, &rows), tokens, "{}", cpu.isa);
            for r in [0, 17, rows.len() - 1] {
                let alone = run_draw(cpu, &x[r * vocab..(r + 1) * vocab], vocab, &rows[r..=r]);
                assert_eq!(alone[0], tokens[r], "{}: row {r} alone", cpu.isa);
            }
        }
    }
}

#[test]
fn an_impossible_token_is_never_drawn() {
    for cpu in cpus() {
        let mut x = vec![f32::NEG_INFINITY; 600];
        (x[300], x[310]) = (1.0, 1.0);
        for uniform in [1e-12, 0.499, 0.501, 1.0 - 1e-12] {
            let d = Draw { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, uniform };
            assert_eq!(run_draw(&cpu, &x, 600, &[d]), [if uniform < 0.5 { 300 } else { 310 }]);
        }
    }
}
