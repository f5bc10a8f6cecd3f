"""An engine's metrics, in the types that scripts written for vLLM read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from octavo.boundary import Sample


@dataclass(frozen=True)
class Counter:
    """What only grows. The name is the exported one without `_total`."""

    name: str
    value: int | float
    """A whole number unless it counts seconds."""
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Gauge:
    """A present level."""

    name: str
    value: float
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Histogram:
    """Observations."""

    name: str
    count: int
    sum: float
    buckets: dict[str, int]
    """How many were at most each bound."""
    labels: dict[str, str] = field(default_factory=dict)


Metric = Counter | Gauge | Histogram


def metrics_of(samples: Iterable[Sample]) -> list[Metric]:
    """Those of the engine, without those of a server or a process."""
    return [_metric(sample) for sample in samples if sample[0].startswith("vllm:")]


def _metric(sample: Sample) -> Metric:
    name, labels, kind, value = sample
    if isinstance(value, tuple):
        count, total, buckets = value
        bounds = {str(bound): number for bound, number in buckets}
        return Histogram(name, count, total, {**bounds, "+Inf": count}, labels)
    if kind == "gauge":
        return Gauge(name, value, labels)
    return Counter(name.removesuffix("_total"), int(value) if value.is_integer() else value, labels)
