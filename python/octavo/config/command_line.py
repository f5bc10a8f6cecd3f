"""The command line as one more source of options."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, NoReturn

from octavo.config.compat import FIXED, SWITCHES, SYNONYMS
from octavo.config.option import (
    BOOLEAN,
    OBJECT,
    ConfigError,
    Option,
    default_text,
    nearest,
    options_of,
    parse_scalar,
)
from octavo.config.resolve import Config, canonical, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from octavo.config.options import EngineConfig


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors take one line and suggest the nearest flag."""

    def error(self, message: str) -> NoReturn:
        """Print the message and how to get help, and exit with status 2."""
        self.exit(2, f"{self.prog}: {message}\nTry: {self.prog} --help\n")

    def parse_strict(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse, and refuse what is unknown with the nearest known flag."""
        parsed, unknown = self.parse_known_args([_dashed(item) for item in arguments])
        if unknown:
            name = unknown[0].partition("=")[0]
            known = [flag for action in self._actions for flag in action.option_strings]
            self.error(f"unknown argument {name}{nearest(name, known)}")
        return parsed


def _dashed(argument: str) -> str:
    if not argument.startswith("--"):
        return argument
    flag, equals, value = argument.partition("=")
    name, dot, rest = flag.partition(".")
    return name.replace("_", "-") + dot + rest + equals + value


class _Several(argparse.Action):
    """Values of a list option. Notes a flag with several, the last of which may be meant as the model."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or []), *values])
        if len(values) > 1:
            namespace.several = option_string


def parse_config(config: type[Config], parser: Parser, arguments: Sequence[str]) -> Config:
    """Read `arguments` (no program name) into a `config`; exits with status 2 if wrong."""
    _add_options(parser, config)
    try:
        plain, dotted = _split_dotted(options_of(config), arguments)
        given = {key: value for key, value in vars(parser.parse_strict(plain)).items() if value is not None}
        file = given.pop("config", None)
        flag = given.pop("several", None)
        if flag is not None and not given.keys() & {"model", "model_flag"}:
            parser.error(
                f"the last value of {flag} could be the model: put MODEL first "
                f"({parser.prog} MODEL {flag} ...), or repeat {flag} before each of its values"
            )
        if "model_flag" in given:
            given["model"] = given.pop("model_flag")
        for name, entries in dotted.items():
            given[name] = {**OBJECT.convert(given.get(name, {})), **entries}
        return resolve(config, given, file=file, source="command line")
    except ConfigError as error:
        parser.error(str(error).removeprefix("command line: "))


def _add_options(parser: argparse.ArgumentParser, config: type[EngineConfig]) -> None:
    parser.add_argument(
        "--config", metavar="FILE", help="YAML file of options; the command line wins over it."
    )
    groups: dict[str, argparse._ArgumentGroup] = {}
    for name, declared in options_of(config).items():
        group = groups.get(declared.group) or parser.add_argument_group(declared.group)
        groups[declared.group] = group
        if name == "model":
            group.add_argument("model", nargs="?", metavar="MODEL", help=_help(declared))
            group.add_argument("--model", dest="model_flag", metavar="MODEL", help=argparse.SUPPRESS)
            continue
        flags = [declared.flag, *("--" + alias.replace("_", "-") for alias in declared.aliases)]
        if declared.kind is BOOLEAN:
            group.add_argument(*flags, dest=name, action=argparse.BooleanOptionalAction, help=_help(declared))
        elif declared.kind.is_list:
            group.add_argument(
                *flags, dest=name, nargs="+", action=_Several, metavar="X", help=_help(declared)
            )
        else:
            metavar = "{" + ",".join(declared.choices) + "}" if declared.choices else declared.kind.metavar
            group.add_argument(*flags, dest=name, metavar=metavar, help=_help(declared))
    for name in (*FIXED, *SYNONYMS):
        flag = "--" + name.replace("_", "-")
        if name in SWITCHES:
            parser.add_argument(
                flag, dest=name, action=argparse.BooleanOptionalAction, help=argparse.SUPPRESS
            )
        else:
            parser.add_argument(flag, dest=name, help=argparse.SUPPRESS)


def _help(declared: Option) -> str:
    return (declared.help + f" Default: {default_text(declared)}.").replace("%", "%%")


def _split_dotted(
    options: Mapping[str, Option], arguments: Sequence[str]
) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Take `--object-option.key value` out of `arguments`; keys may be nested with further dots."""
    plain: list[str] = []
    dotted: dict[str, dict[str, Any]] = {}
    items = iter(arguments)
    for argument in items:
        flag, equals, value = argument.partition("=")
        name, dot, path = flag.partition(".")
        declared = options.get(canonical(name)) if name.startswith("--") and dot else None
        if declared is None or declared.kind is not OBJECT:
            plain.append(argument)
            continue
        if not equals:
            value = next(items, "")
        *parents, last = path.split(".")
        place = dotted.setdefault(declared.name, {})
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = parse_scalar(value)
    return plain, dotted
