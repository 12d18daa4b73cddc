"""HTTP requests to a pt2hub server; translates urllib3's exceptions and foreign responses into pt2hub errors."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

import urllib3

from pt2hub.client.http.presigned import PARALLEL, SEND_BYTES, PresignedClient, pieces, range_header
from pt2hub.client.http.server_info import JSON_TYPE, ServerInfo, media_type, release_after
from pt2hub.domain.codec import decode
from pt2hub.errors import BadResponse, Pt2hubError, ServerUnreachable, StorageUnavailable
from pt2hub.wire.compatibility import USER_AGENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pt2hub.client.http.transfers import Slice

T = TypeVar("T")
MAX_ANSWER_BYTES = 64 << 20
"""Maximum size of a response without a blob: a spec, a view, a manifest."""
_CONNECT_SECONDS = 5.0
_READ_SECONDS = 60.0
_ATTEMPTS = 3
_STORAGE_ATTEMPTS = 6
"""Attempts while a storage answers SlowDown: six seconds with the pauses."""
_PAUSE_SECONDS = 0.2
_READING = ("GET", "HEAD")
_RETRIES = urllib3.Retry(
    total=_ATTEMPTS,
    backoff_factor=_PAUSE_SECONDS,
    status_forcelist=(HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT),
    allowed_methods=(
        "GET",
        "HEAD",
        "PUT",
    ),  # uploads are named by their digest: doing it twice changes nothing
    raise_on_status=False,
    raise_on_redirect=False,
    respect_retry_after_header=False,  # bounded by our own back-off, not by the other side
)

_ONCE = urllib3.Retry(total=_ATTEMPTS, connect=0, read=0, status=0, other=0, raise_on_redirect=False)


class Transport:
    """Requests to one server. Nothing is sent before the first request.

    Args:
        token: Sent with every request, where given.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        url_from: str | None = None,
        token_from: str | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._peer = ServerInfo(self.url, url_from=url_from, token_from=token_from if token else "")
        self._headers = {"User-Agent": USER_AGENT, "Accept-Encoding": "identity"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._pool = urllib3.PoolManager(
            retries=_RETRIES,
            timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS),
            maxsize=PARALLEL,
            blocksize=SEND_BYTES,
        )
        self.direct = PresignedClient(self.url)

    def close(self) -> None:
        """Close idle connections."""
        self._pool.clear()
        self.direct.close()

    def get(self, path: str, query: Mapping[str, str | int] | None = None) -> Any:
        """Return the JSON response of a path.

        Raises:
            ServerUnreachable: No answer.
            BadResponse: The answer is not pt2hub's.
            Pt2hubError: The server's own error, as the class it raised.
        """
        return self._json("GET", f"{path}?{urlencode(query)}" if query else path)

    def fetch(self, cls: type[T], path: str, query: Mapping[str, str | int] | None = None) -> T:
        """Return the response of a path as an instance of a class; errors as for `get`."""
        return self._read(cls, self.get(path, query), path)

    def ask(
        self, cls: type[T], method: str, path: str, body: bytes = b"", *, content_type: str = JSON_TYPE
    ) -> T:
        """Send a document as `send` does and return the response as an instance of a class."""
        return self._read(cls, self.send(method, path, body, content_type=content_type), path)

    def _read(self, cls: type[T], value: Any, path: str) -> T:
        try:
            return decode(cls, value)
        except BadResponse as exc:
            raise self._peer.misread(exc, path) from exc

    def send(self, method: str, path: str, body: bytes = b"", *, content_type: str = JSON_TYPE) -> Any:
        """Send a document with any method and return the JSON response; errors as for `get`.

        A PUT may be sent again where no answer came, so what it asks for must be idempotent.
        """
        return self._json(method, path, body=body, headers={"Content-Type": content_type})

    def read(self, path: str) -> bytes:
        """Return the bytes of a small response, such as a manifest; errors as for `get`."""
        return self._answer("GET", path)[1]

    def delete(self, path: str) -> None:
        """Send one DELETE request with a short timeout; errors as for `get`."""
        with self._open("DELETE", path, timeout=_CONNECT_SECONDS, retries=_ONCE):
            pass

    def put(self, path: str, file: Slice, size: int) -> None:
        """Upload a file.

        Args:
            file: Positioned at its begin; rewound where the upload is tried again.
            size: Its length in bytes.

        Raises:
            Pt2hubError: As for `get`.
        """
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        with self._open("PUT", path, body=file, headers=headers) as response:
            self._body(response)

    def stream(self, path: str, size: int) -> Iterator[bytes]:
        """Yield the bytes of a blob in chunks; resume after broken connections, as long as each attempt makes progress.

        They come from the server, or from its storage where the server says so.

        Args:
            size: How many there must be.

        Raises:
            ServerUnreachable: The connection broke again and again; the error says how much came.
            StorageUnavailable: The same for the storage, or it refused again and again.
            BadResponse: The answer has another length.
            Pt2hubError: The server's own error, as the class it raised.
        """
        done, vain = 0, 0
        while True:
            before = done
            try:
                for chunk in self._pieces(path, done, size):
                    done += len(chunk)
                    yield chunk
            except (ServerUnreachable, StorageUnavailable) as exc:
                vain = 1 if done > before else vain + 1
                if vain == (_ATTEMPTS if isinstance(exc, ServerUnreachable) else _STORAGE_ATTEMPTS):
                    raise self._gave_up(exc, path, done, size) from exc
                time.sleep(_PAUSE_SECONDS * 2 ** (vain - 1))
            else:
                return

    def _gave_up(
        self, exc: ServerUnreachable | StorageUnavailable, path: str, done: int, size: int
    ) -> Pt2hubError:
        return type(exc)(
            f"The download stopped after {done} of {size} bytes, and retries made no progress: {exc.message}",
            where=self.url + path if isinstance(exc, ServerUnreachable) else exc.where,
            hint=exc.hint,
            context={"received": done, "expected": size},
        )

    def _pieces(self, path: str, start: int, size: int) -> Iterator[bytes]:
        headers = range_header(start)
        with self._guard(), self._send("GET", path, headers=headers, redirect=False) as response:
            if response.status < HTTPStatus.MULTIPLE_CHOICES:
                yield from pieces(response, start, size, where=self.url + path)
                return
            if not response.get_redirect_location():
                raise self._peer.failure(response, self._body(response))
            elsewhere = response.status != HTTPStatus.TEMPORARY_REDIRECT
            address = response.headers["Location"]
        if elsewhere:  # a server that moved, which does not concern its storage
            with self._open("GET", path, headers=headers) as response:
                yield from pieces(response, start, size, where=self.url + path)
        else:
            yield from self.direct.read(address, start, size)

    def _json(self, method: str, path: str, **options: Any) -> Any:
        response, body = self._answer(method, path, **options)
        if media_type(response) != JSON_TYPE:
            raise self._peer.foreign(response, body)
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as exc:
            raise self._peer.foreign(response, body) from exc

    def _answer(
        self,
        method: str,
        path: str,
        **options: Any,
    ) -> tuple[urllib3.BaseHTTPResponse, bytes]:
        """Return a response and its body; retry if the connection breaks."""
        vain = 0
        while True:
            try:
                with self._open(method, path, **options) as response:
                    return response, self._body(response)
            except ServerUnreachable as exc:
                vain += 1
                if method != "GET" or "received" not in exc.context or vain == _ATTEMPTS:
                    raise
                time.sleep(_PAUSE_SECONDS * vain)

    @contextmanager
    def _open(self, method: str, path: str, **options: Any) -> Iterator[urllib3.BaseHTTPResponse]:
        with self._guard(), self._send(method, path, **options) as response:
            if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                if response.get_redirect_location():
                    raise self._peer.elsewhere(response)
                raise self._peer.failure(response, self._body(response))
            yield response

    @contextmanager
    def _send(self, method: str, path: str, **options: Any) -> Iterator[urllib3.BaseHTTPResponse]:
        headers = self._headers | options.pop("headers", {})
        options.setdefault("redirect", method in _READING)  # else a file's body would be at its end
        response = self._pool.request(
            method,
            self.url + path,
            headers=headers,
            preload_content=False,
            **options,
        )
        with release_after(response):
            self._peer.meet(response)
            yield response

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except urllib3.exceptions.HTTPError as exc:
            raise self._peer.unreachable(exc) from exc

    def _body(self, response: urllib3.BaseHTTPResponse) -> bytes:
        body: bytes = response.read(MAX_ANSWER_BYTES + 1)
        if len(body) > MAX_ANSWER_BYTES:
            response.close()
            raise BadResponse(f"The response is longer than {MAX_ANSWER_BYTES} bytes", where=self.url)
        return body
