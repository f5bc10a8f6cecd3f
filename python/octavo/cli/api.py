"""A small client of an OpenAI-compatible server, on the standard library alone."""

from __future__ import annotations

import http.client
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONNECT_TIMEOUT_S = 10


class ApiError(Exception):
    """The server cannot be reached or has refused; the message is fit to show."""


class Api:
    """Calls to the server at `url`, such as http://localhost:8000/v1."""

    def __init__(self, url: str, key: str | None) -> None:
        parts = urlsplit(url if "//" in url else "http://" + url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ApiError(f"{url} is not an http address")
        self._parts = parts
        self._path = parts.path.rstrip("/") or "/v1"
        self._headers = {"Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    @property
    def address(self) -> str:
        """Scheme, host and port."""
        return f"{self._parts.scheme}://{self._parts.netloc}"

    def models(self) -> list[str]:
        """Names of the models that the server has, in its order."""
        with self._call("GET", "/models", None) as response:
            return [str(model["id"]) for model in json.load(response)["data"]]

    def stream(self, route: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Post `body` and yield each chunk of the streamed answer. Closing the iterator stops the answer."""
        body = {**body, "stream": True, "stream_options": {"include_usage": True}}
        with self._call("POST", route, body) as response:
            for line in response:
                if not line.startswith(b"data:"):
                    continue
                data = line[5:].strip()
                if data == b"[DONE]":
                    return
                chunk: dict[str, Any] = json.loads(data)
                if "error" in chunk:
                    raise ApiError(_message(chunk, "the answer broke off"))
                yield chunk
            raise ApiError("the server closed the connection in the middle of the answer")

    @contextmanager
    def _call(
        self, method: str, route: str, body: dict[str, Any] | None
    ) -> Iterator[http.client.HTTPResponse]:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=_CONNECT_TIMEOUT_S)
        try:
            try:
                connection.connect()
                connection.sock.settimeout(None)
                payload = None if body is None else json.dumps(body)
                connection.request(method, self._path + route, payload, self._headers)
                response = connection.getresponse()
                if response.status != 200:
                    raise ApiError(_refusal(response))
                yield response
            except (OSError, http.client.HTTPException) as error:
                raise ApiError(
                    f"no answer from {self.address} ({error}); start a server with: octavo serve"
                ) from None
            except (ValueError, KeyError, TypeError) as error:
                raise ApiError(f"{self.address} does not answer like an OpenAI server: {error}") from None
        finally:
            connection.close()


def _refusal(response: http.client.HTTPResponse) -> str:
    fallback = f"{response.status} {response.reason}"
    if response.status == 401:
        return "the server asks for a key: pass --api-key"
    try:
        return _message(json.loads(response.read(65536)), fallback)
    except ValueError:
        return fallback


def _message(body: Any, fallback: str) -> str:
    error = body.get("error") if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return str(message) if message else fallback
