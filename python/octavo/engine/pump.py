"""Updates to asyncio: one thread for all streams of an engine."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from typing import TYPE_CHECKING

from octavo.engine.errors import EngineDeadError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from octavo._core import Door, Update
    from octavo.boundary import PromptSource, SamplingOptions

_WAIT_S = 0.5

_Stream = tuple[asyncio.AbstractEventLoop, "asyncio.Queue[Update | None]"]


class Pump:
    """Starts its thread with the first stream; what piles up for a stream is bounded by its tokens."""

    def __init__(self, door: Door) -> None:
        self._session = door.session()
        self._lock = threading.Lock()
        self._streams: dict[int, _Stream] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    async def stream(self, source: PromptSource, options: SamplingOptions) -> AsyncIterator[Update]:
        """Updates of one request to its last; leaving early aborts it."""
        queue: asyncio.Queue[Update | None] = asyncio.Queue()
        with self._lock:
            if self._closed:
                raise EngineDeadError("the engine is closed")
            (number,) = self._session.submit([(source, options)], False)
            self._streams[number] = (asyncio.get_running_loop(), queue)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="octavo-pump", daemon=True)
                self._thread.start()
        try:
            while True:
                update = await queue.get()
                if update is None:
                    raise EngineDeadError("the engine was closed")
                yield update
                if update.last:
                    return
        finally:
            with self._lock:
                self._streams.pop(number, None)
            self._session.abort([number])

    def close(self) -> None:
        """End all streams with an error and the thread with them."""
        with self._lock:
            self._closed = True
            streams = list(self._streams.values())
            self._streams.clear()
        for loop, queue in streams:
            _call(loop, [(queue, None)])
        self._session.close()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._closed:
            updates = self._session.wait(_WAIT_S)
            batches: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Queue[Update | None], Update | None]]]
            batches = defaultdict(list)
            with self._lock:
                for update in updates:
                    if update.id in self._streams:
                        loop, queue = self._streams[update.id]
                        batches[loop].append((queue, update))
            for loop, batch in batches.items():
                _call(loop, batch)


def _call(
    loop: asyncio.AbstractEventLoop, batch: list[tuple[asyncio.Queue[Update | None], Update | None]]
) -> None:
    """Wake an event loop once for all its streams; one that is closed has nobody left to tell."""

    def put() -> None:
        for queue, update in batch:
            queue.put_nowait(update)

    if not loop.is_closed():
        loop.call_soon_threadsafe(put)
