"""An engine's statistics as the metrics that its HTTP server exports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Counter:
    """What only grows. The name is the exported one without `_total`."""

    name: str
    value: int
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Gauge:
    """A present level."""

    name: str
    value: float
    labels: dict[str, str] = field(default_factory=dict)


Metric = Counter | Gauge

# Exported name -> name in the core's statistics.
_GAUGES = {
    "num_requests_running": "running",
    "num_requests_waiting": "waiting",
    "kv_cache_usage_perc": "kv_usage",
}
_COUNTERS = {
    "prefix_cache_queries": "prefix_query_tokens",
    "prefix_cache_hits": "prefix_hit_tokens",
    "num_preemptions": "preemptions",
    "prompt_tokens_cached": "prompt_tokens_cached",
    "generation_tokens": "generated_tokens",
}


def metrics_of(stats: Mapping[str, float], model: str) -> list[Metric]:
    """The metrics of an engine whose core has these statistics."""
    labels = {"model_name": model, "engine": "0"}
    gauges = [Gauge(f"vllm:{name}", float(stats[key]), labels) for name, key in _GAUGES.items()]
    counters = [Counter(f"vllm:{name}", int(stats[key]), labels) for name, key in _COUNTERS.items()]
    return [*gauges, *counters]
