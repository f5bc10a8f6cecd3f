"""The reference page of options: `python -m octavo.config.reference > docs/reference/options.md`."""

from __future__ import annotations

import sys

from octavo.config.option import BOOLEAN, Option, default_text, options_of
from octavo.config.options import EngineConfig, ServeConfig

_INTRODUCTION = """# Options

Generated from `python/octavo/config/options.py` by `python -m octavo.config.reference`; edit there.

An option has one name everywhere: `--max-model-len` on the command line, `max-model-len:` in a YAML file
(`--config file.yaml`), `OCTAVO_MAX_MODEL_LEN` in the environment, `max_model_len=` for `Engine` and `LLM`.
The command line or keyword wins over YAML, YAML over the environment, the environment over the default.
Dashes and underscores are the same. Switches are turned off by `--no-...`. Integers may end in k, m, g, t
(powers of 1000) or K, M, G, T (powers of 1024): `25.6k` is 25600, `4K` is 4096. JSON objects may be given in
parts: `--hf-overrides.rope_theta 5e5`. Options of the group *HTTP server* belong to `octavo serve` alone.
"""


def reference_page() -> str:
    """The page as Markdown."""
    lines = [_INTRODUCTION]
    engine = options_of(EngineConfig)
    options = options_of(ServeConfig)
    for group in dict.fromkeys(declared.group for declared in options.values()):
        lines += [f"## {group}", "", "| option | value | default | meaning |", "|---|---|---|---|"]
        for declared in options.values():
            if declared.group == group:
                offline = engine.get(declared.name)
                lines.append(_row(declared, default_text(offline) if offline else None))
        lines.append("")
    return "\n".join(lines)


def _row(declared: Option, offline_default: str | None) -> str:
    name = "`MODEL`" if declared.name == "model" else f"`{declared.flag}`"
    names = [name, *(f"`--{alias.replace('_', '-')}`" for alias in declared.aliases)]
    value = " ".join(f"`{item}`" for item in declared.choices) or declared.kind.name
    default = default_text(declared)
    if offline_default not in (None, default):
        default += f" (offline: {offline_default})"
    meaning = declared.help
    if declared.env:
        meaning += " Also " + ", ".join(f"`{variable}`" for variable in declared.env) + "."
    if declared.kind is BOOLEAN:
        value = "switch"
    return f"| {', '.join(names)} | {value} | {default} | {meaning.replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    sys.stdout.write(reference_page())
