"""The keys of `kv_events_config`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.config.option import BOOLEAN, INTEGER, STRING, ConfigError, Option, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

# ZeroMQ's queue a subscriber is of a fixed size in the library.
_HWM = 100_000
_GROUP = "kv_events_config"
_KEYS = {
    "enable_kv_cache_events": Option(BOOLEAN, "Publish.", _GROUP, default=False),
    "publisher": Option(STRING, "zmq, or null for none.", _GROUP, default="zmq", choices=("zmq", "null")),
    "endpoint": Option(STRING, "Where to publish.", _GROUP, default="tcp://127.0.0.1:5557"),
    "replay_endpoint": Option(STRING, "Where to ask for missed batches.", _GROUP),
    "buffer_steps": Option(
        INTEGER, "Batches kept for that.", _GROUP, default=10_000, minimum=0, maximum=10**7
    ),
    "hwm": Option(INTEGER, "Queue of a subscriber.", _GROUP, default=_HWM, minimum=_HWM, maximum=_HWM),
    "max_queue_size": Option(
        INTEGER, "Batches that wait to be sent.", _GROUP, default=100_000, minimum=1, maximum=10**7
    ),
    "topic": Option(STRING, "First frame of each message.", _GROUP, default=""),
    "event_format": Option(
        STRING, "Fields by name or by place.", _GROUP, default="map", choices=("map", "array")
    ),
}


def publisher_config(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """The options of the publisher, resolved; None where nothing is to be published.

    Raises ConfigError that names the key.
    """
    values = {name: option.default for name, option in _KEYS.items()}
    for name, value in given.items():
        if name not in _KEYS:
            raise ConfigError(f"{_GROUP}: unknown key {name}{nearest(name, list(_KEYS))}")
        if value is not None:
            values[name] = Option(**{**vars(_KEYS[name]), "name": name}).convert(value, _GROUP)
    enabled = values.pop("enable_kv_cache_events")
    publisher = values.pop("publisher")
    del values["hwm"]
    return values if enabled and publisher == "zmq" else None
