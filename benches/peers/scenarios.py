"""What is asked of every server, and what Octavo aims at."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Scenario:
    """A closed loop of streamed completions; every run draws new prompts, the same for each engine."""

    name: str
    title: str
    streams: int
    requests: int
    input_len: int
    output_len: int
    metric: str = "output_throughput"
    prefix_len: int = 0
    warmups: int = 0
    # Another program computes at the same time.
    busy: bool = False
    # Least ratio of Octavo to the best peer, by kind of format.
    aims: dict[str, float] = field(default_factory=dict)

    @property
    def prompt_len(self) -> int:
        """Tokens of a whole prompt."""
        return self.prefix_len + self.input_len

    @property
    def unit(self) -> str:
        """Return what the metric counts."""
        return {
            "output_throughput": "output tokens/s",
            "prompt_throughput": "prompt tokens/s",
            "duration": "s",
        }[self.metric]

    def load_arguments(self, seed: int, limit_s: float) -> list[str]:
        """Return flags of `octavo-bench load`."""
        values = {
            "num-prompts": self.requests,
            "max-concurrency": self.streams,
            "input-len": self.input_len,
            "prefix-len": self.prefix_len,
            "output-len": self.output_len,
            "num-warmups": self.warmups,
            "prompt-format": "ids",
            "seed": seed,
            "timeout": limit_s,
        }
        return [part for name, value in values.items() for part in (f"--{name}", str(value))]


# The most important first: where time is short, the last are left out.
REAL = (
    Scenario("c1", "1 stream, 128 in, 128 out", 1, 1, 128, 128, warmups=1, aims={"float": 1.3, "quant": 1.4}),
    Scenario("c8", "8 streams, 128 in, 128 out", 8, 8, 128, 128, aims={"float": 2.5, "quant": 3.0}),
    Scenario(
        "prefill",
        "prompt of 1,024",
        1,
        2,
        1024,
        1,
        metric="prompt_throughput",
        warmups=1,
        aims={"float": 1.6, "quant": 2.5},
    ),
    Scenario("c32", "32 streams, 128 in, 128 out", 32, 32, 128, 128, aims={"float": 2.5, "quant": 4.0}),
    Scenario(
        "prefix",
        "32 requests, 768 shared + 32, 16 out",
        32,
        32,
        32,
        16,
        metric="duration",
        prefix_len=768,
        aims={"float": 3.0, "quant": 3.0},
    ),
    Scenario("busy8", "8 streams beside a busy process", 8, 8, 128, 128, busy=True),
)
TINY = (
    Scenario("tiny1", "tiny model, 1 stream, 32 in, 128 out", 1, 4, 32, 128, warmups=1),
    Scenario("tiny256", "tiny model, 256 streams, 32 in, 128 out", 256, 256, 32, 128, aims={"tiny": 5.0}),
)
# Undisturbed scenario that each disturbed one is compared with, and the most that throughput may fall.
FALL = {"busy8": ("c8", 2.5)}
SCENARIOS = {scenario.name: scenario for scenario in (*REAL, *TINY)}
