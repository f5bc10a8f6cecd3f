"""Options: declared once in `options`, set by keyword, command line, YAML or environment."""

from octavo.config.option import ConfigError as ConfigError
from octavo.config.options import EngineConfig as EngineConfig
from octavo.config.options import ServeConfig as ServeConfig
from octavo.config.resolve import resolve as resolve

__all__ = ["ConfigError", "EngineConfig", "ServeConfig", "resolve"]
