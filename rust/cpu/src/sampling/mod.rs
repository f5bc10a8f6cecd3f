//! Tokens and log-probabilities from logits, without sorting a vocabulary. A row's outcome depends on that row alone.

mod draw;

pub use draw::{DrawRows, draw};

use crate::elementwise::over_rows;
use crate::pool::AssumeSync;
use crate::simd::{F32x16, Kernel, LANES, dispatch};
use crate::{Cpu, DType, MatRef};

/// Elements that are looked at before the best so far is compared.
const RUN: usize = 256;

/// The largest logit of each row and its token, the lowest on ties. Not-a-number counts as largest.
///
/// # Safety
/// Rows have `vocab` f32 elements, one or more; `values` and `tokens` have room for `logits.rows`.
///
/// # Panics
/// When the logits are not f32.
pub unsafe fn greedy(cpu: &Cpu, logits: MatRef, vocab: usize, values: *mut f32, tokens: *mut i64) {
    assert_eq!(logits.dtype, DType::F32, "greedy: logits are f32");
    let out = AssumeSync((values, tokens));
    over_rows(cpu, logits.rows, vocab, |rows| {
        for r in rows {
            // SAFETY: the set is available; row `r` is as the caller promised.
            unsafe {
                let row = logits.row(r).cast::<f32>();
                let (value, token) = dispatch(cpu.isa, Greatest { row, vocab });
                *out.get().0.add(r) = value;
                *out.get().1.add(r) = token as i64;
            }
        }
    });
}

/// The first of a row's greatest elements.
struct Greatest {
    row: *const f32,
    vocab: usize,
}

impl Kernel for Greatest {
    type Output = (f32, usize);
    #[inline(always)]
    unsafe fn run<V: F32x16>(self) -> (f32, usize) {
        let Self { row, vocab } = self;
        // SAFETY: the caller's: the row has `vocab` elements.
        unsafe {
            let (mut best, mut found) = (f32::NEG_INFINITY, 0);
            for start in (0..vocab).step_by(RUN) {
                let end = vocab.min(start + RUN);
                let (mut most, mut strange) = (V::splat(f32::NEG_INFINITY), 0);
                for i in (start..end).step_by(LANES) {
                    let count = LANES.min(end - i);
                    let x = V::load_some(row.add(i), count).select(0, count, most);
                    strange |= x.unordered();
                    most = most.max(x);
                }
                if strange != 0 {
                    let place = (start..end).find(|&i| (*row.add(i)).is_nan()).unwrap_or(start);
                    return (f32::NAN, place);
                }
                let value = most.greatest();
                if value > best {
                    (best, found) = (value, start);
                }
            }
            let place = (found..vocab).find(|&i| *row.add(i) == best).unwrap_or(0);
            (*row.add(place), place)
        }
    }
}

/// Where [`token_logprobs`] writes, for `n` rows.
#[derive(Clone, Copy, Debug)]
pub struct LogprobsOut {
    /// `[n]`, of the row's token.
    pub logprob: *mut f32,
    /// `[n]`: how many tokens are more likely, and one.
    pub rank: *mut i32,
    /// `[n, k]`, best first, lower ids first on ties.
    pub top_id: *mut i32,
    /// `[n, k]`.
    pub top_logprob: *mut f32,
    /// How many of the best are wanted; at most the vocabulary.
    pub k: usize,
}

/// Log-probabilities of `tokens[row]`, its rank, and the `k` most likely tokens. The absolute error of a
/// log-probability is below `1e-5 + 2^-22 |logprob|` for logits below 1000.
///
/// # Errors
/// A token is not in the vocabulary.
///
/// # Safety
/// Rows have `vocab` f32 elements; `tokens` and `out` have room for `logits.rows`.
///
/// # Panics
/// When the logits are not f32 or `k` is above `vocab`.
pub unsafe fn token_logprobs(
    cpu: &Cpu,
    logits: MatRef,
    vocab: usize,
    tokens: *const i64,
    out: LogprobsOut,
) -> Result<(), String> {
    assert!(
        logits.dtype == DType::F32 && out.k <= vocab,
        "token_logprobs: f32 logits, k up to the vocabulary"
    );
    for row in 0..logits.rows {
        // SAFETY: there is a token for each row.
        let token = unsafe { *tokens.add(row) };
        if token < 0 || token as usize >= vocab {
            return Err(format!("token_logprobs: token {token} of row {row} is not below {vocab}"));
        }
    }
    let shared = AssumeSync((tokens, out));
    over_rows(cpu, logits.rows, 4 * vocab, |rows| {
        let (tokens, out) = shared.get();
        let mut best: Vec<(f32, u32)> = Vec::with_capacity(out.k + 1);
        for r in rows {
            // SAFETY: the set is available; row `r` of everything is as the caller promised.
            unsafe {
                let row = logits.row(r).cast::<f32>();
                let token = *tokens.add(r) as usize;
                best.clear();
                let call = Logprobs { row, vocab, token, k: out.k, best: &mut best };
                let (logprob, rank) = dispatch(cpu.isa, call);
                *out.logprob.add(r) = logprob;
                *out.rank.add(r) = rank;
                for (i, &(value, id)) in best.iter().enumerate() {
                    *out.top_id.add(r * out.k + i) = id as i32;
                    *out.top_logprob.add(r * out.k + i) = value;
                }
            }
        }
    });
    Ok(())
}

struct Logprobs<'a> {
    row: *const f32,
    vocab: usize,
    token: usize,
    k: usize,
    /// Filled with the best, in order.
    best: &'a mut Vec<(f32, u32)>,
}

impl Kernel for Logprobs<'_> {
    type Output = (f32, i32);
    #[inline(always)]
    unsafe fn run<V: F32x16>(self) -> (f32, i32) {
        let Self { row, vocab, token, k, best } = self;
        // SAFETY: the caller's: the row has `vocab` elements.
        unsafe {
            let most = Greatest { row, vocab }.run::<V>().0;
            let log_sum = (sum_of_exp::<V>(row, vocab, most) as f32).ln();
            let (most, log_sum) = (V::splat(most), V::splat(log_sum));
            let lowest = V::splat(f32::NEG_INFINITY);
            let chosen = V::splat(*row.add(token)).sub(most).sub(log_sum);
            let mut more = 0;
            let mut enough = lowest;
            for i in (0..vocab).step_by(LANES) {
                let count = LANES.min(vocab - i);
                let x = V::load_some(row.add(i), count).sub(most).sub(log_sum).select(0, count, lowest);
                more += x.greater(chosen).count_ones() as i32;
                let better = if best.len() < k { (1 << count) - 1 } else { x.greater(enough) };
                if better != 0 && k > 0 {
                    let mut lanes = [0.0; LANES];
                    x.store(lanes.as_mut_ptr());
                    insert(best, k, &lanes, better, i);
                    if best.len() == k {
                        enough = V::splat(best[k - 1].0);
                    }
                }
            }
            (chosen.greatest(), more + 1)
        }
    }
}

/// `sum exp(x - most)`; runs are summed in f32, their sums in f64.
#[inline(always)]
unsafe fn sum_of_exp<V: F32x16>(row: *const f32, vocab: usize, most: f32) -> f64 {
    let mut total = 0.0;
    // SAFETY: the caller's: the row has `vocab` elements.
    unsafe {
        for start in (0..vocab).step_by(RUN) {
            let end = vocab.min(start + RUN);
            let mut sum = V::zero();
            for i in (start..end).step_by(LANES) {
                let count = LANES.min(end - i);
                let x = V::load_some(row.add(i), count).sub(V::splat(most)).exp();
                sum = sum.add(x.select(0, count, V::zero()));
            }
            total += f64::from(sum.sum());
        }
    }
    total
}

/// Puts the lanes of `which` into the sorted best, behind their equals; ids count from `first`.
fn insert(best: &mut Vec<(f32, u32)>, k: usize, lanes: &[f32; LANES], which: u32, first: usize) {
    for (lane, &value) in lanes.iter().enumerate().filter(|(lane, _)| which >> lane & 1 == 1) {
        if best.len() == k && best[k - 1].0.partial_cmp(&value) != Some(std::cmp::Ordering::Less) {
            continue;
        }
        let place = best.partition_point(|&(other, _)| other >= value);
        best.insert(place, (value, (first + lane) as u32));
        best.truncate(k);
    }
}

#[cfg(test)]
mod tests;
