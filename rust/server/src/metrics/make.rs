//! Makes metrics and registers them.

use octavo_core::{Error, Result};
use prometheus::core::Collector;
use prometheus::{
    Counter, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry,
};

/// Value of the label `engine`: there is one.
const ENGINE: &str = "0";

/// Makes metrics with base labels and registers them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Maker<'a> {
    registry: &'a Registry,
    prefix: &'a str,
    /// Labels of every metric that it makes.
    base: &'a [(&'a str, &'a str)],
}

impl<'a> Maker<'a> {
    /// Of metrics without labels of their own, named as they are.
    pub fn plain(registry: &'a Registry) -> Self {
        Self { registry, prefix: "", base: &[] }
    }

    /// Of the engine's metrics.
    pub fn engine(registry: &'a Registry, base: &'a [(&'a str, &'a str)]) -> Self {
        Self { registry, prefix: "vllm:", base }
    }

    fn opts(self, name: &str, help: &str) -> Opts {
        let opts = Opts::new(format!("{}{name}", self.prefix), help);
        self.base.iter().fold(opts, |opts, (label, value)| opts.const_label(*label, *value))
    }

    fn register<M: Collector + Clone + 'static>(self, metric: prometheus::Result<M>) -> Result<M> {
        let metric = metric.map_err(|error| internal(&error))?;
        self.registry.register(Box::new(metric.clone())).map_err(|error| internal(&error))?;
        Ok(metric)
    }

    pub fn gauge(self, name: &str, help: &str) -> Result<Gauge> {
        self.register(Gauge::with_opts(self.opts(name, help)))
    }

    pub fn gauge_by(self, name: &str, help: &str, labels: &[&str]) -> Result<GaugeVec> {
        self.register(GaugeVec::new(self.opts(name, help), labels))
    }

    pub fn level(self, name: &str, help: &str) -> Result<IntGauge> {
        self.register(IntGauge::with_opts(self.opts(name, help)))
    }

    pub fn level_by(self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec> {
        self.register(IntGaugeVec::new(self.opts(name, help), labels))
    }

    pub fn sum(self, name: &str, help: &str) -> Result<Counter> {
        self.register(Counter::with_opts(self.opts(name, help)))
    }

    pub fn counter(self, name: &str, help: &str) -> Result<IntCounter> {
        self.register(IntCounter::with_opts(self.opts(name, help)))
    }

    pub fn counter_by(self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec> {
        self.register(IntCounterVec::new(self.opts(name, help), labels))
    }

    pub fn histogram(self, name: &str, help: &str, buckets: Vec<f64>) -> Result<Histogram> {
        self.register(Histogram::with_opts(HistogramOpts { common_opts: self.opts(name, help), buckets }))
    }

    pub fn histogram_by(
        self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> Result<HistogramVec> {
        let opts = HistogramOpts { common_opts: self.opts(name, help), buckets: buckets.to_vec() };
        self.register(HistogramVec::new(opts, labels))
    }

    /// A gauge that is 1 and says something by its labels.
    pub fn info<'l>(
        self,
        name: &str,
        help: &str,
        labels: impl Iterator<Item = (&'l str, &'l str)>,
    ) -> Result<()> {
        let opts = labels.fold(self.opts(name, help), |opts, (label, value)| opts.const_label(label, value));
        self.register(Gauge::with_opts(opts))?.set(1.0);
        Ok(())
    }
}

/// The model, and the engine where a metric tells engines apart.
pub(super) fn base_labels(model: &str) -> [(&str, &str); 2] {
    [("model_name", model), ("engine", ENGINE)]
}

pub(super) fn internal(error: &prometheus::Error) -> Error {
    Error::internal(format!("a metric could not be made: {error}"))
}
