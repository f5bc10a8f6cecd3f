"""Errors that the doors raise. A caller's mistake is a ValueError that names the field."""


class OctavoError(RuntimeError):
    """What went wrong and what to do, in one line."""


class ModelError(OctavoError):
    """The model could not be found, fetched or loaded."""


class EngineDeadError(OctavoError):
    """The engine stopped and cannot answer any more."""
