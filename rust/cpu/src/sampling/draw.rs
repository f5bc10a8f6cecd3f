//! A random token from filtered probabilities.

use super::{Greatest, RUN};
use crate::buffer::Buffer;
use crate::elementwise::over_rows;
use crate::pool::AssumeSync;
use crate::simd::{F32x16, Kernel, LANES, dispatch};
use crate::{Cpu, DType, MatRef};
use std::cell::RefCell;

/// Parameters and results of `n` rows.
#[derive(Clone, Copy, Debug)]
pub struct DrawRows {
    /// f32 `[n]`, above 0.
    pub temperature: *const f32,
    /// i32 `[n]`: how many of the most likely tokens are kept; 0 for all.
    pub top_k: *const i32,
    /// f32 `[n]`: which share of the probability is kept; 1 for all.
    pub top_p: *const f32,
    /// f32 `[n]`: how likely a token must be, compared to the most likely.
    pub min_p: *const f32,
    /// f64 `[n]` in (0, 1): the random numbers.
    pub uniform: *const f64,
    /// i64 `[n]`: the tokens.
    pub tokens: *mut i64,
}

thread_local! {
    static PROBS: RefCell<Buffer> = RefCell::new(Buffer::zeroed(1 << 16));
}

/// Draws a token a row. The filters apply in the order `min_p`, `top_k`, `top_p`, each to what the one before left;
/// tokens as likely as the last one kept are kept. The token is where the cumulative probability, in the order of
/// ids, passes `uniform`.
///
/// # Safety
/// Rows have `vocab` f32 elements, one or more; `call` has arrays of `logits.rows`.
///
/// # Panics
/// When the logits are not f32.
pub unsafe fn draw(cpu: &Cpu, logits: MatRef, vocab: usize, call: DrawRows) {
    assert_eq!(logits.dtype, DType::F32, "draw: logits are f32");
    let call = AssumeSync(call);
    over_rows(cpu, logits.rows, 4 * vocab, |rows| {
        let call = call.get();
        PROBS.with_borrow_mut(|probs| {
            let padded = vocab.next_multiple_of(LANES);
            let probs = probs.reserve(padded * size_of::<f32>()).cast::<f32>();
            for r in rows {
                // SAFETY: the set is available; row `r` of everything is as the caller promised.
                unsafe {
                    let row = logits.row(r).cast::<f32>();
                    dispatch(
                        cpu.isa,
                        Probabilities { row, vocab, temperature: *call.temperature.add(r), probs },
                    );
                    let (top_k, top_p, min_p) = (*call.top_k.add(r), *call.top_p.add(r), *call.min_p.add(r));
                    let filters = Filters { top_k: top_k.max(0) as usize, top_p: f64::from(top_p), min_p };
                    let floor = filters.floor(std::slice::from_raw_parts(probs, vocab));
                    let uniform = *call.uniform.add(r);
                    *call.tokens.add(r) = dispatch(cpu.isa, Pick { probs, vocab, floor, uniform }) as i64;
                }
            }
        });
    });
}

/// Probabilities, relative to the greatest, below this are 0: just above `e^-87`.
const IMPOSSIBLE: f32 = 2e-38;

/// `exp(x / temperature - max)`, zero from `vocab` to the next whole vector.
struct Probabilities {
    row: *const f32,
    vocab: usize,
    temperature: f32,
    probs: *mut f32,
}

impl Kernel for Probabilities {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: F32x16>(self) {
        let Self { row, vocab, temperature, probs } = self;
        // SAFETY: the caller's: the row has `vocab` elements, `probs` has room for whole vectors.
        unsafe {
            // Division keeps the order, so this is the greatest of the scaled logits.
            let most = V::splat(Greatest { row, vocab }.run::<V>().0 / temperature);
            let temperature = V::splat(temperature);
            for i in (0..vocab).step_by(LANES) {
                let count = LANES.min(vocab - i);
                let x = V::load_some(row.add(i), count).div(temperature).sub(most).exp();
                // The exponential is never 0; an impossible token's probability is.
                let x = x.at_least(V::splat(IMPOSSIBLE));
                x.select(0, count, V::zero()).store(probs.add(i));
            }
        }
    }
}

/// What narrows the choice.
struct Filters {
    top_k: usize,
    top_p: f64,
    min_p: f32,
}

/// Buckets of probabilities up to 1 by exponent and the three highest bits of the fraction.
const BUCKETS: usize = (1.0f32.to_bits() >> SHIFT) as usize + 1;
const SHIFT: u32 = 20;

fn bucket(prob: f32) -> usize {
    ((prob.to_bits() >> SHIFT) as usize).min(BUCKETS - 1)
}

impl Filters {
    /// The least probability that all filters keep; the greatest of `probs` is 1.
    fn floor(&self, probs: &[f32]) -> f32 {
        let by_rank = self.top_k > 0 && self.top_k < probs.len();
        if !by_rank && self.top_p >= 1.0 {
            return self.min_p;
        }
        let (mut count, mut mass) = ([0u32; BUCKETS], [0.0f64; BUCKETS]);
        for &p in probs {
            count[bucket(p)] += 1;
            mass[bucket(p)] += f64::from(p);
        }
        let ranked = if by_rank { self.min_p.max(nth(probs, &count, self.top_k)) } else { self.min_p };
        if self.top_p >= 1.0 {
            return ranked;
        }
        self.floor_of_mass(probs, &mass, ranked)
    }

    /// The probability at which the mass of those from it up reaches `top_p` of all that is at least `least`.
    fn floor_of_mass(&self, probs: &[f32], mass: &[f64; BUCKETS], least: f32) -> f32 {
        let last = bucket(least);
        let edge: f64 =
            probs.iter().filter(|&&p| bucket(p) == last && p >= least).map(|&p| f64::from(p)).sum();
        let left = mass[last + 1..].iter().sum::<f64>() + edge;
        let wanted = self.top_p * left;
        let mut above = 0.0;
        for index in (last..BUCKETS).rev() {
            let here = if index == last { edge } else { mass[index] };
            if above + here < wanted && index > last {
                above += here;
                continue;
            }
            let mut members: Vec<f32> =
                probs.iter().copied().filter(|&p| bucket(p) == index && p >= least).collect();
            members.sort_unstable_by(|a, b| b.total_cmp(a));
            for p in members {
                above += f64::from(p);
                if above >= wanted {
                    return p;
                }
            }
        }
        least
    }
}

/// The `n`-th greatest probability, `n` from 1.
fn nth(probs: &[f32], count: &[u32; BUCKETS], n: usize) -> f32 {
    let mut above = 0;
    for index in (0..BUCKETS).rev() {
        let here = count[index] as usize;
        if above + here >= n {
            let mut members: Vec<f32> = probs.iter().copied().filter(|&p| bucket(p) == index).collect();
            let (_, value, _) = members.select_nth_unstable_by(n - above - 1, |a, b| b.total_cmp(a));
            return *value;
        }
        above += here;
    }
    0.0
}

/// Where the cumulative probability of the tokens that are kept passes `uniform`.
struct Pick {
    probs: *const f32,
    vocab: usize,
    floor: f32,
    uniform: f64,
}

impl Pick {
    /// Sums of the kept probabilities by runs.
    #[inline(always)]
    unsafe fn run_sum<V: F32x16>(&self, start: usize, end: usize) -> f64 {
        // SAFETY: the caller's: `probs` has whole vectors.
        unsafe {
            let floor = V::splat(self.floor);
            let mut sum = V::zero();
            for i in (start..end).step_by(LANES) {
                sum = sum.add(V::load(self.probs.add(i)).at_least(floor));
            }
            f64::from(sum.sum())
        }
    }
}

impl Kernel for Pick {
    type Output = usize;
    #[inline(always)]
    unsafe fn run<V: F32x16>(self) -> usize {
        // SAFETY: the caller's: `probs` has whole vectors.
        unsafe {
            let runs = || (0..self.vocab).step_by(RUN).map(|start| (start, self.vocab.min(start + RUN)));
            let total: f64 = runs().map(|(start, end)| self.run_sum::<V>(start, end)).sum();
            let target = self.uniform * total;
            // The last run that keeps anything, and the sum before it.
            let (mut at, mut sum, mut before) = (0, 0.0, 0.0);
            for (start, end) in runs() {
                let here = self.run_sum::<V>(start, end);
                if here > 0.0 {
                    (at, sum) = (start, before);
                }
                before += here;
                if before > target {
                    break;
                }
            }
            // Where rounding leaves the target beyond the end, it is the last token kept.
            let mut token = at;
            for i in at..self.vocab.min(at + RUN) {
                let p = *self.probs.add(i);
                if p >= self.floor && p > 0.0 {
                    token = i;
                    sum += f64::from(p);
                    if sum > target {
                        break;
                    }
                }
            }
            token
        }
    }
}
