"""From what was given in four places to one configuration.

Precedence: keyword or command line, then YAML, then environment, then default.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from octavo.config.compat import translate
from octavo.config.kv_events import publisher_config
from octavo.config.option import ConfigError, Option, UnknownOptionError, nearest, options_of
from octavo.config.options import EngineConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

Config = TypeVar("Config", bound=EngineConfig)


def canonical(name: str) -> str:
    """An option's name with underscores."""
    return name.strip().lstrip("-").replace("-", "_")


def resolve(
    config: type[Config],
    given: Mapping[str, Any],
    *,
    file: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    source: str = "argument",
) -> Config:
    """Merge all sources into a `config`.

    `given` are keyword arguments or parsed command-line options, `file` a YAML file, `environ` replaces the
    process environment. None is as if the option had not been given. Raises ConfigError that names source and
    option; unknown keys get the nearest name.
    """
    options = options_of(config)
    values = _from_environment(options, os.environ if environ is None else environ)
    if file is not None:
        values |= _named(options, read_yaml(file), f"{file}")
    values |= _named(options, given, source)
    resolved = config(**values)
    _check(resolved)
    return resolved


def read_yaml(file: str | os.PathLike[str]) -> dict[str, Any]:
    """The mapping in a YAML file; option names may have dashes or underscores."""
    path = Path(file)
    if path.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"{path}: a configuration file ends in .yaml or .yml")
    import yaml  # noqa: PLC0415  (slow to import, seldom needed)

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from None
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ConfigError(f"{path}: must be a mapping of option names to values")
    return content


def _from_environment(options: Mapping[str, Option], environ: Mapping[str, str]) -> dict[str, Any]:
    values = {}
    for name, declared in options.items():
        for variable in declared.env_names:
            text = environ.get(variable, "")
            if text != "":
                lowered = text.lower() if declared.choices else text
                values[name] = declared.convert(lowered, f"environment variable {variable}")
                break
    return values


def _named(options: Mapping[str, Option], given: Mapping[str, Any], source: str) -> dict[str, Any]:
    aliases = {alias: name for name, declared in options.items() for alias in declared.aliases}
    plain = translate({canonical(key): value for key, value in given.items()}, source)
    values = {}
    for key, value in plain.items():
        name = aliases.get(key, key)
        if name not in options:
            raise UnknownOptionError(f"{source}: unknown option {key}{nearest(key, [*options, *aliases])}")
        if value is None:
            continue
        values[name] = options[name].convert(value, source)
    return values


def _check(config: EngineConfig) -> None:
    if not config.enable_chunked_prefill:
        raise ConfigError(
            "enable_chunked_prefill cannot be off: a prompt longer than max_num_batched_tokens is always "
            "computed in parts; raise max_num_batched_tokens to have fewer of them"
        )
    if publisher_config(config.kv_events_config) is not None and not config.enable_prefix_caching:
        raise ConfigError(
            "kv_events_config publishes what the prefix cache holds: turn enable_prefix_caching on"
        )
    if config.max_num_batched_tokens < config.max_num_seqs:
        raise ConfigError(
            f"max_num_batched_tokens ({config.max_num_batched_tokens}) must be at least max_num_seqs "
            f"({config.max_num_seqs}): each running sequence needs one token a step"
        )
