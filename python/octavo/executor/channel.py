"""What the server process and a worker process share: memory for steps, and a socket.

Memory holds `depth` frames and `depth` results. The socket carries a doorbell (one byte, the index of a frame
or result that is ready) per step and JSON messages at start. End of file means that the other side is gone.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import socket
import struct
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_MESSAGE = 0xFF
_LENGTH = struct.Struct("<I")
_MAX_MESSAGE_BYTES = 16 << 20


class PeerDiedError(ConnectionError):
    """The process at the other end of the channel is gone."""


class Channel:
    """One end of the socket between server and worker."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._pending = bytearray()
        # Not select(), which knows no descriptor above 1023: a server with many connections has those.
        self._poll = select.poll()
        self._poll.register(end, select.POLLIN)

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Two connected ends."""
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(left), cls(right)

    @classmethod
    def inherited(cls, descriptor: int) -> Channel:
        """The end whose descriptor a parent process has passed on."""
        return cls(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        """The socket's descriptor, to pass on or to wait for."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close this end; the other sees end of file."""
        self._socket.close()

    def ring(self, index: int) -> None:
        """Tell the other side that frame or result `index` is ready."""
        self._send(bytes((index,)))

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a JSON message."""
        body = json.dumps(message).encode()
        self._send(bytes((_MESSAGE,)) + _LENGTH.pack(len(body)) + body)

    def wait(self, timeout_s: float) -> bool:
        """True as soon as `receive` would return at once, False after `timeout_s` without anything."""
        return bool(self._pending) or bool(self._poll.poll(timeout_s * 1000))

    def receive(self) -> int | dict[str, Any]:
        """Wait for the next doorbell (an index) or message. Raises PeerDiedError at end of file."""
        first = self._take(1)[0]
        if first != _MESSAGE:
            return first
        (length,) = _LENGTH.unpack(self._take(_LENGTH.size))
        if length > _MAX_MESSAGE_BYTES:
            raise PeerDiedError(f"a message of {length} bytes is not one of ours")
        message: dict[str, Any] = json.loads(self._take(length))
        return message

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise PeerDiedError(str(error)) from None

    def _take(self, count: int) -> bytes:
        while len(self._pending) < count:
            try:
                data = self._socket.recv(65536)
            except OSError as error:
                raise PeerDiedError(str(error)) from None
            if not data:
                raise PeerDiedError("end of file")
            self._pending += data
        taken = bytes(self._pending[:count])
        del self._pending[:count]
        return taken


@dataclass(frozen=True)
class Buffers:
    """Views of step memory: frames are written by the core, results by the worker."""

    frames: list[memoryview]
    results: list[memoryview]


class SharedMemory:
    """Anonymous memory that others can map by its descriptor; sized once it is known how much is needed."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = _anonymous_file() if descriptor is None else descriptor

    def fileno(self) -> int:
        """The descriptor to pass to the child."""
        return self._descriptor

    def buffers(self, depth: int, frame_bytes: int, result_bytes: int) -> Buffers:
        """Map `depth` frames, then `depth` results; sizes are multiples of 64 bytes."""
        return _split(self.map(depth * (frame_bytes + result_bytes)), depth, frame_bytes, result_bytes)

    def map(self, size: int) -> memoryview:
        """The first `size` bytes. Raises OSError where there is no room for them."""
        if os.fstat(self._descriptor).st_size < size:
            os.ftruncate(self._descriptor, size)
        return memoryview(mmap.mmap(self._descriptor, size))

    def close(self) -> None:
        """Close the descriptor; mapped buffers stay valid."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def private_buffers(depth: int, frame_bytes: int, result_bytes: int) -> Buffers:
    """The same buffers for a worker in this process."""
    view = memoryview(mmap.mmap(-1, depth * (frame_bytes + result_bytes)))
    return _split(view, depth, frame_bytes, result_bytes)


def _split(view: memoryview, depth: int, frame_bytes: int, result_bytes: int) -> Buffers:
    results = depth * frame_bytes
    return Buffers(
        frames=[view[i * frame_bytes : (i + 1) * frame_bytes] for i in range(depth)],
        results=[view[results + i * result_bytes : results + (i + 1) * result_bytes] for i in range(depth)],
    )


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("octavo-steps", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
