"""What an option is: one declaration that every way of setting it reads."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from octavo.config.core_list import core_numbers

_SUFFIXES = {
    "k": 1000,
    "m": 1000**2,
    "g": 1000**3,
    "t": 1000**4,
    "K": 1024,
    "M": 1024**2,
    "G": 1024**3,
    "T": 1024**4,
}
_NUMBER = re.compile(r"([+-]?\d+(?:\.\d+)?)([kmgtKMGT]?)")
_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off"}


class ConfigError(ValueError):
    """An option has a bad name or a bad value; the message names it."""


class UnknownOptionError(ConfigError):
    """There is no option of that name."""


def nearest(name: str, known: list[str]) -> str:
    """A hint that names the most similar known name, or nothing."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


@dataclass(frozen=True)
class Kind:
    """A type of value: its name in the documentation and how a given value becomes one."""

    name: str
    convert: Callable[[Any], Any]
    metavar: str
    is_list: bool = False


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError("must be an integer")
    if isinstance(value, int):
        return value
    match = _NUMBER.fullmatch(value.strip())
    if match is None:
        raise ValueError("must be an integer, such as 4096, 4K (4 x 1024) or 25.6k (25600)")
    digits, suffix = match.groups()
    if "." in digits and not suffix.islower():
        raise ValueError("decimals need a decimal suffix: k, m, g or t (25.6k is 25600)")
    return (
        round(float(digits) * _SUFFIXES[suffix]) if "." in digits else int(digits) * _SUFFIXES.get(suffix, 1)
    )


def _length(value: Any) -> int:
    return -1 if value == "auto" else _integer(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError("must be a number")
    try:
        return float(value)
    except ValueError:
        raise ValueError("must be a number") from None


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError("must be true or false")


def _string(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if hasattr(value, "__fspath__"):
        return str(value.__fspath__())
    raise ValueError("must be a string")


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        text = value.strip()
        value = json.loads(text) if text.startswith("[") else [text]
    if not isinstance(value, (list, tuple)):
        raise ValueError("must be a list of strings")
    flat: list[str] = []
    for item in value:
        flat.extend(
            _strings(item) if isinstance(item, str) and item.strip().startswith("[") else [_string(item)]
        )
    return flat


def _object(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise ValueError(f"must be a JSON object ({error})") from None
    if not isinstance(value, Mapping):
        raise ValueError("must be a JSON object")
    return dict(value)


def _cores(value: Any) -> str | list[int]:
    if isinstance(value, (list, tuple)):
        value = ",".join(str(number) for number in value)
    text = _string(value).strip().lower()
    if text in ("auto", "none"):
        return text
    if text == "nobind":
        return "none"
    try:
        return core_numbers(text)
    except ValueError as error:
        raise ValueError(f"must be auto, none or a list of cores such as 0-3,8 ({error})") from None


def parse_scalar(text: str) -> Any:
    """`text` as JSON or as an integer with a suffix where it is one, else itself."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return _integer(text) if _NUMBER.fullmatch(text) else text


INTEGER = Kind("integer", _integer, "N")
LENGTH = Kind("integer or auto", _length, "N|auto")
NUMBER = Kind("number", _number, "X")
BOOLEAN = Kind("boolean", _boolean, "")
STRING = Kind("string", _string, "TEXT")
STRINGS = Kind("list of strings", _strings, "TEXT", is_list=True)
CORES = Kind("auto, none or list of cores", _cores, "auto|none|LIST")
OBJECT = Kind("JSON object", _object, "JSON")


@dataclass(frozen=True)
class Option:
    """One option, as declared on a field of a configuration class.

    `env` are environment variables besides `OCTAVO_<NAME>`, which comes first. `minimum` and `maximum` are
    inclusive; `above` is exclusive.
    """

    kind: Kind
    help: str
    group: str
    name: str = ""
    default: Any = None
    default_text: str | None = None
    env: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    secret: bool = False

    @property
    def flag(self) -> str:
        """The long flag, with dashes."""
        return "--" + self.name.replace("_", "-")

    @property
    def env_names(self) -> tuple[str, ...]:
        """Environment variables, in order of precedence."""
        return ("OCTAVO_" + self.name.upper(), *self.env)

    def convert(self, value: Any, source: str) -> Any:
        """The typed value, or ConfigError that says where the bad value came from."""
        try:
            result = self.kind.convert(value)
            self._check(result)
        except ValueError as error:
            shown = "the given value" if self.secret else repr(value)
            raise ConfigError(f"{source}: {self.name}: {error}, not {shown}") from None
        return result

    def _check(self, value: Any) -> None:
        if self.choices and value not in self.choices:
            raise ValueError("must be one of " + ", ".join(self.choices))
        if self.kind not in (INTEGER, LENGTH, NUMBER):
            return
        if self.kind is LENGTH and value == -1:
            return
        if self.minimum is not None and not value >= self.minimum:
            raise ValueError(f"must be at least {self.minimum:g}")
        if self.above is not None and not value > self.above:
            raise ValueError(f"must be above {self.above:g}")
        if self.maximum is not None and not value <= self.maximum:
            raise ValueError(f"must be at most {self.maximum:g}")


def option(default: Any, kind: Kind, group: str, help: str, **more: Any) -> Any:  # noqa: A002
    """A dataclass field that carries its option."""
    declared = Option(kind=kind, help=help, group=group, default=default, **more)
    if isinstance(default, (list, dict)):
        return field(default_factory=default.copy, metadata={"option": declared})
    return field(default=default, metadata={"option": declared})


def options_of(config: type) -> dict[str, Option]:
    """The options of a configuration class by name (with underscores), in order of declaration."""
    found = {}
    for item in fields(config):
        declared: Option = item.metadata["option"]
        found[item.name] = Option(**{**vars(declared), "name": item.name})
    return found


def default_text(declared: Option) -> str:
    """An option's default in words."""
    if declared.default_text is not None:
        return declared.default_text
    if isinstance(declared.default, bool):
        return "on" if declared.default else "off"
    if declared.default in (None, [], {}):
        return "none"
    return (
        json.dumps(declared.default) if isinstance(declared.default, (list, dict)) else str(declared.default)
    )
