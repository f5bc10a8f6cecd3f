"""The runs of a log as one page of Markdown."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from .roofline import Limits, Model, scenario_s, step_s
from .scenarios import FALL, SCENARIOS, Scenario
from .weights import TINY

if TYPE_CHECKING:
    from collections.abc import Sequence

Record = dict[str, Any]
ENGINES = ("octavo", "llama.cpp", "vllm")
# More than this many processors used by others, on average over a run, and the run proves nothing.
QUIET_CORES = 0.1
READ = """How to read it. Cells: median [least - most] of the runs. Ratio: Octavo to the better peer, above
1 is better for Octavo, with the range over runs of the same turn. Of several settings of a peer, the best
for the scenario counts. `>`, `<`: runs were cut at the limit, the figure is a bound (`?`: both were). `~`:
other programs took more than 0.1 processors in a run. Shares in the second table: the least time that the
machine needs, by its measured read bandwidth and peak (benches/peers/roofline.py), over the time taken;
"steps" is that of the decode steps alone. KV memory has each engine's default type: float16 in llama.cpp,
that of activations in Octavo and vLLM. Ready: from the start of the process to the first answer, weights in
the page cache."""


class Report:
    """Everything that the tables need."""

    def __init__(self, records: list[Record], models: dict[str, Model]) -> None:
        self.machine = next(record for record in reversed(records) if record["scenario"] == "machine")
        self.runs = [record for record in records if record["scenario"] in SCENARIOS]
        self.starts = [record for record in records if record["scenario"] == "start"]
        self.failed = [record for record in records if record["scenario"] == "failed"]
        self.models = models

    def markdown(self) -> str:
        """Return the page."""
        return "\n\n".join([self.head(), self.speed(), self.limits(), self.memory(), READ]) + "\n"

    def head(self) -> str:
        """What was measured, and whether it counts."""
        machine = self.machine
        versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
        size = f"{machine['threads']} cores, {machine['memory_gib']} GiB"
        lines = [f"{machine['date']}, {machine['processor']}, {size}; `{machine['command']}`; {versions}."]
        noisy = [run["other_cores"] for run in self.runs if run["other_cores"] > QUIET_CORES]
        if noisy:
            lines.append(
                f"**The machine was not quiet** in {len(noisy)} of {len(self.runs)} runs (others took up to "
                f"{max(noisy):.1f} processors): these figures prove nothing."
            )
        if self.failed:
            names = sorted({f"{run['format']} {run['of']} {run['engine']}" for run in self.failed})
            lines.append(
                f"Requests failed in {len(self.failed)} runs, which are left out: {', '.join(names)}."
            )
        return "\n\n".join(lines)

    def groups(self) -> list[tuple[str, Scenario]]:
        """Each format and scenario that was run, in order."""
        seen = {(run["format"], run["scenario"]) for run in self.runs}
        formats = dict.fromkeys(run["format"] for run in self.runs)
        return [(f, s) for f in formats for name, s in SCENARIOS.items() if (f, name) in seen]

    def settings(self, format_: str, scenario: Scenario, engine: str) -> dict[str, list[Record]]:
        """Return the runs of an engine by setting."""
        found: dict[str, list[Record]] = {}
        for run in self.runs:
            if (run["format"], run["scenario"], run["engine"]) == (format_, scenario.name, engine):
                found.setdefault(run["setting"], []).append(run)
        return found

    def best(self, format_: str, scenario: Scenario, engine: str) -> list[Record]:
        """Return the runs of an engine in its best setting."""
        settings = self.settings(format_, scenario, engine)
        return max(settings.values(), key=lambda runs: goodness(scenario, runs), default=[])

    def speed(self) -> str:
        """The comparison."""
        rows: list[Sequence[str]] = [("format", "scenario", "unit", *ENGINES, "ratio", "aim")]
        for format_, scenario in self.groups():
            runs = {engine: self.best(format_, scenario, engine) for engine in ENGINES}
            against = max(ENGINES[1:], key=lambda engine: goodness(scenario, runs[engine]))
            kind = {"f32": "float", "bf16": "float", TINY: TINY}.get(format_, "quant")
            aim = f">= {scenario.aims[kind]}" if kind in scenario.aims else "-"
            cells = (cell(scenario, runs[engine]) for engine in ENGINES)
            ratio = ratio_of(scenario, runs["octavo"], runs[against])
            rows.append((format_, scenario.title, scenario.unit, *cells, ratio, aim))
            if scenario.name in FALL:
                rows.append(self.fall(format_, scenario))
        return table(rows)

    def fall(self, format_: str, disturbed: Scenario) -> Sequence[str]:
        """How far the busy process makes each engine fall."""
        name, aim = FALL[disturbed.name]
        calm, cells = SCENARIOS[name], []
        for engine in ENGINES:
            before, after = (self.settings(format_, scenario, engine) for scenario in (calm, disturbed))
            falls = {s: median(calm, before[s]) / median(disturbed, after[s]) for s in after if s in before}
            setting = min(falls, key=lambda s: falls[s], default="")
            cut = any("error" in run for run in after.get(setting, []))
            cells.append(f"{'>' if cut else ''}{falls[setting]:.1f}" if falls else "-")
        return (format_, "  falls by, against undisturbed", "times", *cells, "-", f"<= {aim}")

    def limits(self) -> str:
        """Shares of what the machine can do."""
        columns = ("format", "scenario", "MB read a token", "Mop a token", "limit", "set by", *ENGINES)
        rows: list[Sequence[str]] = [columns]
        for format_, scenario in self.groups():
            if scenario.busy:
                continue
            model = self.models[format_]
            limits = Limits.of(self.machine, format_, model.weight_bytes >> 20)
            prefill = scenario.output_len == 1
            context = scenario.prompt_len + scenario.output_len / 2
            read = model.step_bytes(scenario.streams, context)
            read /= scenario.prompt_len if prefill else scenario.streams
            least = scenario_s(model, limits, scenario)
            by_bytes, by_operations = step_s(model, limits, scenario)
            reading = by_bytes > by_operations and not prefill
            rate = f"{amount(scenario) / least:,.0f} {scenario.unit}"
            shares = (
                share(scenario, self.best(format_, scenario, engine), least, max(by_bytes, by_operations))
                for engine in ENGINES
            )
            rows.append(
                (
                    format_,
                    scenario.title,
                    f"{read / 1e6:.2f}",
                    f"{model.token_operations(context, sampled=not prefill) / 1e6:.0f}",
                    f"{least:.2f} s" if scenario.metric == "duration" else rate,
                    "reading" if reading else limits.instruction,
                    *shares,
                )
            )
        reads = ", ".join(f"{read['gb_s']:.1f} ({read['mib']} MiB)" for read in self.machine["read"])
        peaks = ", ".join(
            f"{p['gop_s']:,.0f} ({p['number']}, {p['instruction']})" for p in self.machine["peak"]
        )
        return f"Measured limits of the machine: reading {reads} GB/s; {peaks} Gop/s.\n\n{table(rows)}"

    def memory(self) -> str:
        """Start-up and memory."""
        columns = ("format", "engine", "setting", "ready, s", "MiB when ready", "MiB at most", "answer")
        rows: list[Sequence[str]] = [columns]
        names = ("format", "engine", "setting")
        for of in dict.fromkeys(tuple(start[name] for name in names) for start in self.starts):
            starts = [s for s in self.starts if tuple(s[name] for name in names) == of and "error" not in s]
            if not starts:
                rows.append((*of, "did not start", "-", "-", "-"))
                continue
            most = [run["pss_mib"] for run in self.runs if tuple(run[name] for name in names) == of]
            ready = (
                spread([start["ready_s"] for start in starts], 1),
                spread([s["pss_mib"] for s in starts], 0),
            )
            answer = starts[-1]["text"].replace("\n", "\\n")
            rows.append((*of, *ready, f"{max(most):,.0f}" if most else "-", f"`{answer}`"))
        return table(rows)


def amount(scenario: Scenario) -> float:
    """What the scenario's rate counts."""
    prompts = scenario.metric == "prompt_throughput"
    return scenario.requests * (scenario.prompt_len if prompts else scenario.output_len)


def value(scenario: Scenario, run: Record) -> float:
    """Return the metric of a run; of one that was cut, its bound."""
    if "error" not in run:
        return float(run[scenario.metric])
    limit = float(run["limit_s"])
    return limit if scenario.metric == "duration" else amount(scenario) / limit


def median(scenario: Scenario, runs: list[Record]) -> float:
    return statistics.median(value(scenario, run) for run in runs)


def goodness(scenario: Scenario, runs: list[Record]) -> float:
    """More is better; 0 without runs."""
    if not runs:
        return 0.0
    return 1 / median(scenario, runs) if scenario.metric == "duration" else median(scenario, runs)


def cell(scenario: Scenario, runs: list[Record]) -> str:
    if not runs:
        return "-"
    noisy = "~ " if any(run["other_cores"] > QUIET_CORES for run in runs) else ""
    bound = (">" if scenario.metric == "duration" else "<") if any("error" in run for run in runs) else ""
    return f"{noisy}{bound}{spread([value(scenario, run) for run in runs], 1)}"


def ratio_of(scenario: Scenario, ours: list[Record], theirs: list[Record]) -> str:
    """Octavo over a peer: of the medians, with the range over runs of one turn."""
    if not ours or not theirs:
        return "-"
    turns = {(run["round"], run["repeat"]): goodness(scenario, [run]) for run in theirs}
    ratios = [
        goodness(scenario, [run]) / turns[turn]
        for run in ours
        if (turn := (run["round"], run["repeat"])) in turns
    ]
    our_cut, their_cut = (any("error" in run for run in runs) for runs in (ours, theirs))
    if our_cut and their_cut:
        return "?"
    bound = "<" if our_cut else ">" if their_cut else ""
    middle = goodness(scenario, ours) / goodness(scenario, theirs)
    span = f" [{min(ratios):.2f} - {max(ratios):.2f}]" if len(ratios) > 1 else ""
    return f"**{bound}{middle:.2f}**{span}"


def share(scenario: Scenario, runs: list[Record], least_s: float, step_least_s: float) -> str:
    """Least time over time taken; of one stream, also that of the decode steps alone."""
    good = [run for run in runs if "error" not in run]
    if not good:
        return "-"
    shown = f"{100 * least_s / statistics.median(run['duration'] for run in good):.0f} %"
    if scenario.streams == 1 and scenario.output_len > 1:
        gap = statistics.median(run["median_tpot_ms"] for run in good) / 1000
        shown += f" (steps {100 * step_least_s / gap:.0f} %)"
    return shown


def spread(values: list[float], digits: int) -> str:
    middle = f"{statistics.median(values):,.{digits}f}"
    return middle if len(values) == 1 else f"{middle} [{min(values):,.{digits}f} - {max(values):,.{digits}f}]"


def table(rows: list[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])
