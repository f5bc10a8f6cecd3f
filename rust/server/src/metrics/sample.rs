//! Metrics as values, for who does not want text.

use prometheus::proto::{Metric, MetricFamily, MetricType};

/// One value of one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// As exported.
    pub name: String,
    /// Label names and values.
    pub labels: Vec<(String, String)>,
    /// What it is now.
    pub value: Value,
}

/// A value by the metric's type.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Only grows.
    Counter(f64),
    /// A level.
    Gauge(f64),
    /// How many observations, their sum, and how many were at most each bound.
    Histogram { count: u64, sum: f64, buckets: Vec<(f64, u64)> },
}

pub(super) fn samples(families: &[MetricFamily]) -> Vec<Sample> {
    let of_family = |family: &MetricFamily| {
        let (name, kind) = (family.name().to_owned(), family.get_field_type());
        family.get_metric().iter().filter_map(move |metric| sample(&name, kind, metric)).collect::<Vec<_>>()
    };
    families.iter().flat_map(of_family).collect()
}

fn sample(name: &str, kind: MetricType, metric: &Metric) -> Option<Sample> {
    let value = match kind {
        MetricType::COUNTER => Value::Counter(metric.get_counter().get_value()),
        MetricType::GAUGE => Value::Gauge(metric.get_gauge().get_value()),
        MetricType::HISTOGRAM => {
            let histogram = metric.get_histogram();
            let buckets = histogram.get_bucket().iter();
            Value::Histogram {
                count: histogram.get_sample_count(),
                sum: histogram.get_sample_sum(),
                buckets: buckets.map(|bucket| (bucket.upper_bound(), bucket.cumulative_count())).collect(),
            }
        }
        MetricType::SUMMARY | MetricType::UNTYPED => return None,
    };
    let labels = metric.get_label().iter().map(|label| (label.name().to_owned(), label.value().to_owned()));
    Some(Sample { name: name.to_owned(), labels: labels.collect(), value })
}
