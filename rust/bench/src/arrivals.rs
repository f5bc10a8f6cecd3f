//! When requests arrive.

use std::time::Duration;

use rand::rngs::StdRng;
use rand_distr::{Distribution, Gamma};

use crate::error::{Error, Result};
use crate::random::{Purpose, stream};

/// How arrivals are spaced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// Each reply makes room for the next request; this many are in flight.
    Closed {
        /// Requests in flight.
        concurrency: u32,
    },
    /// Independent of replies.
    Open {
        /// Mean arrivals a second; infinite is all at once.
        rate: f64,
        /// Shape of the gamma distribution of gaps.
        burstiness: f64,
        /// A request that arrives over this many in flight waits its turn; the wait counts.
        max_concurrency: Option<u32>,
    },
}

impl Arrivals {
    /// The arrivals of the flags.
    ///
    /// # Errors
    /// A number out of range.
    pub fn new(rate: f64, burstiness: f64, max_concurrency: Option<u32>) -> Result<Self> {
        if max_concurrency == Some(0) {
            return Err(Error::invalid("--max-concurrency is 0; it must be at least 1"));
        }
        if rate.is_nan() || rate <= 0.0 {
            return Err(Error::invalid(format!("--request-rate is {rate}; it must be above 0 or inf")));
        }
        if burstiness.is_nan() || burstiness <= 0.0 {
            return Err(Error::invalid(format!("--burstiness is {burstiness}; it must be above 0 or inf")));
        }
        Ok(match max_concurrency {
            Some(concurrency) if rate.is_infinite() => Self::Closed { concurrency },
            _ => Self::Open { rate, burstiness, max_concurrency },
        })
    }

    /// Times since the start, one a request; a closed loop has none.
    pub fn times(&self, seed: u64) -> Option<Times> {
        let Self::Open { rate, burstiness, .. } = *self else { return None };
        let gaps = if rate.is_infinite() {
            Gaps::Fixed(0.0)
        } else {
            // Mean shape * scale is 1 / rate whatever the shape.
            match Gamma::new(burstiness, 1.0 / (rate * burstiness)) {
                Ok(gamma) if burstiness.is_finite() => Gaps::Gamma(gamma),
                _ => Gaps::Fixed(1.0 / rate),
            }
        };
        Some(Times { gaps, rng: stream(seed, Purpose::Arrivals, 0), next_s: 0.0 })
    }
}

#[derive(Clone, Debug)]
enum Gaps {
    Fixed(f64),
    Gamma(Gamma<f64>),
}

/// An endless iterator of arrival times; the first is 0.
#[derive(Clone, Debug)]
pub struct Times {
    gaps: Gaps,
    rng: StdRng,
    next_s: f64,
}

impl Iterator for Times {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let time = Duration::try_from_secs_f64(self.next_s).ok()?;
        self.next_s += match &self.gaps {
            Gaps::Fixed(gap) => *gap,
            Gaps::Gamma(gamma) => gamma.sample(&mut self.rng),
        };
        Some(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean and coefficient of variation of the gaps.
    fn gaps(rate: f64, burstiness: f64) -> (f64, f64) {
        let times: Vec<f64> = Arrivals::new(rate, burstiness, None)
            .unwrap()
            .times(3)
            .unwrap()
            .take(20_001)
            .map(|time| time.as_secs_f64())
            .collect();
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        (mean, variance.sqrt() / mean)
    }

    #[test]
    fn gaps_have_the_rate_and_the_burstiness_asked_for() {
        for (burstiness, variation) in [(1.0, 1.0), (0.25, 2.0), (4.0, 0.5), (f64::INFINITY, 0.0)] {
            let (mean, found) = gaps(50.0, burstiness);
            assert!((mean * 50.0 - 1.0).abs() < 0.05, "mean gap {mean} at burstiness {burstiness}");
            assert!((found - variation).abs() < 0.1, "variation {found} at burstiness {burstiness}");
        }
    }

    #[test]
    fn an_infinite_rate_sends_all_at_once_unless_a_loop_is_closed() {
        let all = Arrivals::new(f64::INFINITY, 1.0, None).unwrap();
        assert!(all.times(0).unwrap().take(9).all(|time| time.is_zero()));
        let closed = Arrivals::new(f64::INFINITY, 1.0, Some(4)).unwrap();
        assert_eq!(closed, Arrivals::Closed { concurrency: 4 });
        assert!(closed.times(0).is_none());
    }

    #[test]
    fn numbers_out_of_range_name_their_flag() {
        assert!(Arrivals::new(0.0, 1.0, None).unwrap_err().to_string().contains("--request-rate"));
        assert!(Arrivals::new(1.0, -1.0, None).unwrap_err().to_string().contains("--burstiness"));
        assert!(Arrivals::new(1.0, 1.0, Some(0)).unwrap_err().to_string().contains("--max-concurrency"));
    }
}
