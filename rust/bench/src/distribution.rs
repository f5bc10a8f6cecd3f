//! Durations in bounded memory, with percentiles.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Nanoseconds in an hour: longer durations count as an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// A distribution of durations. Mean and maximum are exact; percentiles are
/// within 0.1 % (three significant digits).
#[derive(Clone, Debug)]
pub struct Distribution {
    histogram: Histogram<u64>,
    sum_ns: u128,
    max_ns: u64,
}

/// What a report says of a distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl Default for Distribution {
    fn default() -> Self {
        let histogram = Histogram::new_with_max(LONGEST_NS, 3).expect("constants that the histogram takes");
        Self { histogram, sum_ns: 0, max_ns: 0 }
    }
}

impl Distribution {
    /// Adds one duration.
    pub fn record(&mut self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(ns.min(LONGEST_NS));
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Durations recorded.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Mean, percentiles and maximum in milliseconds; `None` when empty.
    pub fn summary_ms(&self) -> Option<Summary> {
        self.summary(1e6)
    }

    /// The same in nanoseconds.
    pub fn summary_ns(&self) -> Option<Summary> {
        self.summary(1.0)
    }

    fn summary(&self, ns_per_unit: f64) -> Option<Summary> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let at = |quantile: f64| {
            // A bucket's upper bound may lie beyond the longest value.
            self.histogram.value_at_quantile(quantile).min(self.max_ns) as f64 / ns_per_unit
        };
        Some(Summary {
            mean: self.sum_ns as f64 / count as f64 / ns_per_unit,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: self.max_ns as f64 / ns_per_unit,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_a_thousandth() {
        let mut distribution = Distribution::default();
        for us in (1..=10_000).rev() {
            distribution.record(Duration::from_micros(us));
        }
        let summary = distribution.summary_ms().unwrap();
        for (found, expected) in [(summary.p50, 5.0), (summary.p90, 9.0), (summary.p99, 9.9)] {
            assert!((found / expected - 1.0).abs() < 1e-3, "{found} is not {expected}");
        }
        assert!((summary.max - 10.0).abs() < 1e-9);
        assert!((summary.mean - 5.0005).abs() < 1e-9);
    }

    #[test]
    fn nothing_recorded_has_no_summary() {
        assert_eq!(Distribution::default().summary_ms(), None);
    }

    #[test]
    fn the_maximum_bounds_every_percentile() {
        let mut distribution = Distribution::default();
        distribution.record(Duration::from_nanos(123_456_789));
        let summary = distribution.summary_ns().unwrap();
        assert!(summary.p99 <= summary.max && summary.p50 <= summary.p99);
    }
}
