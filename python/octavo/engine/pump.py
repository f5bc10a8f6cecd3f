"""Updates to asyncio: one thread for all streams of an engine."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from octavo._core import Update
from octavo.engine.errors import EngineDeadError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from octavo._core import Door
    from octavo.boundary import PromptSource, SamplingOptions

_WAIT_S = 0.5

_Item = Update | EngineDeadError | None
"""News, the engine's end, or None where the stream was aborted."""


class _Stream(NamedTuple):
    loop: asyncio.AbstractEventLoop
    queue: asyncio.Queue[_Item]
    request_id: str


class Pump:
    """Starts its thread with the first stream; what piles up for a stream is bounded by its tokens.

    The lock is reentrant because the collector may close a forgotten engine while the pump holds it.
    """

    def __init__(self, door: Door) -> None:
        self._session = door.session()
        self._lock = threading.RLock()
        self._streams: dict[int, _Stream] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    async def stream(
        self, source: PromptSource, options: SamplingOptions, request_id: str
    ) -> AsyncGenerator[Update]:
        """Updates of one request to its last, or to its abortion; leaving early aborts it."""
        queue: asyncio.Queue[_Item] = asyncio.Queue()
        with self._lock:
            if self._closed:
                raise EngineDeadError("the engine is closed")
            (number,) = self._session.submit([(source, options)], False)
            self._streams[number] = _Stream(asyncio.get_running_loop(), queue, request_id)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="octavo-pump", daemon=True)
                self._thread.start()
        try:
            while True:
                item = await queue.get()
                if item is None:
                    return
                if isinstance(item, EngineDeadError):
                    raise item
                yield item
                if item.last:
                    return
        finally:
            self._drop(lambda stream: stream.queue is queue)

    def abort(self, request_id: str) -> None:
        """End the streams of that id; they get no more updates."""
        for stream in self._drop(lambda stream: stream.request_id == request_id):
            _call(stream.loop, [(stream.queue, None)])

    def close(self) -> None:
        """End all streams with an error and the thread with them."""
        with self._lock:
            self._closed = True
            streams = list(self._streams.values())
            self._streams.clear()
        for stream in streams:
            _call(stream.loop, [(stream.queue, EngineDeadError("the engine was closed"))])
        self._session.close()
        if self._thread not in (None, threading.current_thread()):
            self._thread.join()

    def _run(self) -> None:
        while not self._closed:
            self._deliver(self._session.wait(_WAIT_S))

    def _deliver(self, updates: list[Update]) -> None:
        batches: dict[asyncio.AbstractEventLoop, _Batch] = defaultdict(list)
        with self._lock:
            for update in updates:
                stream = self._streams.get(update.id)
                if stream is not None:
                    batches[stream.loop].append((stream.queue, update))
        closed = [loop for loop, batch in batches.items() if not _call(loop, batch)]
        if closed:
            self._drop(lambda stream: stream.loop in closed)

    def _drop(self, chosen: Callable[[_Stream], bool]) -> list[_Stream]:
        """Abort and forget streams."""
        with self._lock:
            numbers = [number for number, stream in self._streams.items() if chosen(stream)]
            dropped = [self._streams.pop(number) for number in numbers]
        self._session.abort(numbers)
        return dropped


_Batch = list[tuple["asyncio.Queue[_Item]", _Item]]


def _call(loop: asyncio.AbstractEventLoop, batch: _Batch) -> bool:
    """Wake an event loop once for all its streams; False where it is closed and nobody is left to tell."""

    def put() -> None:
        for queue, item in batch:
            queue.put_nowait(item)

    try:
        loop.call_soon_threadsafe(put)
    except RuntimeError:
        if not loop.is_closed():
            raise
        return False
    return True
