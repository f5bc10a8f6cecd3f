//! What the HTTP server answered.

use std::time::Duration;

use octavo_core::Result;
use prometheus::{Histogram, HistogramVec, IntCounterVec};

use super::buckets;
use super::make::Maker;

/// Requests by route. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct HttpMetrics {
    requests: IntCounterVec,
    request_size: HistogramVec,
    response_size: HistogramVec,
    duration: HistogramVec,
    duration_fine: Histogram,
}

/// One request and its answer. Few values of each label are known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered<'a> {
    /// The route's pattern.
    pub handler: &'a str,
    pub method: &'static str,
    /// `2xx` and the like.
    pub status: &'static str,
    pub request_bytes: u64,
    pub response_bytes: u64,
    /// To the last byte of the answer.
    pub time: Duration,
}

impl HttpMetrics {
    pub(super) fn new(make: Maker<'_>) -> Result<Self> {
        Ok(Self {
            requests: make.counter_by(
                "http_requests_total",
                "Requests answered, by class of status",
                &["method", "status", "handler"],
            )?,
            request_size: make.histogram_by(
                "http_request_size_bytes",
                "Bytes of request bodies, as far as they were read",
                &["handler"],
                buckets::BODY_BYTES,
            )?,
            response_size: make.histogram_by(
                "http_response_size_bytes",
                "Bytes of response bodies, as far as they were sent",
                &["handler"],
                buckets::BODY_BYTES,
            )?,
            duration: make.histogram_by(
                "http_request_duration_seconds",
                "From a request's head to the end of its answer, by route",
                &["method", "handler"],
                buckets::HTTP_SECONDS,
            )?,
            duration_fine: make.histogram(
                "http_request_duration_highr_seconds",
                "From a request's head to the end of its answer",
                buckets::HTTP_SECONDS_FINE.to_vec(),
            )?,
        })
    }

    pub fn answered(&self, answered: Answered<'_>) {
        let Answered { handler, method, status, request_bytes, response_bytes, time } = answered;
        self.requests.with_label_values(&[method, status, handler]).inc();
        self.request_size.with_label_values(&[handler]).observe(request_bytes as f64);
        self.response_size.with_label_values(&[handler]).observe(response_bytes as f64);
        self.duration.with_label_values(&[method, handler]).observe(time.as_secs_f64());
        self.duration_fine.observe(time.as_secs_f64());
    }
}
