"""What can go wrong with a worker."""


class WorkerError(RuntimeError):
    """The worker cannot do its work; the message is one readable line. `details` may hold a traceback."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class WorkerAbandonedError(WorkerError):
    """Nobody waits for the worker any more, so it was not waited for either."""


class WorkerDiedError(WorkerError):
    """The worker has ended or hangs; a new one may do better."""
