"""HTTP requests to a pt2hub server; translates urllib3's exceptions and foreign responses into pt2hub errors."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager, nullcontext
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

import urllib3

from pt2hub.client.http.presigned import POOLED, SEND_BYTES, PresignedClient
from pt2hub.client.http.ranges import CONNECT_SECONDS, SMALL_SILENCE_SECONDS
from pt2hub.client.http.rate_limits import wait_for_turn
from pt2hub.client.http.remote_blob import RemoteBlob
from pt2hub.client.http.server_away import AnnouncedRetry, announced_outage
from pt2hub.client.http.server_info import JSON_TYPE, ServerInfo, media_type, release_after
from pt2hub.domain.codec import decode
from pt2hub.errors import BadResponse, ServerUnreachable
from pt2hub.retry import jitter
from pt2hub.wire.compatibility import USER_AGENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pt2hub.client.http.ranges import ByteRange
    from pt2hub.client.http.transfers import Slice

T = TypeVar("T")
MAX_ANSWER_BYTES = 64 << 20
"""Maximum size of a response without a blob: a spec, a view, a manifest."""
_READ_SECONDS = 60.0
_DOCUMENT_TIMEOUT = urllib3.Timeout(connect=CONNECT_SECONDS, read=SMALL_SILENCE_SECONDS)
"""Time-out of reading a document: a server that accepts and never answers is given up after 40 s and four attempts."""
_ATTEMPTS = 3
_PAUSE_SECONDS = 0.2
_READING = ("GET", "HEAD")
_ELSEWHERE = HTTPStatus.TEMPORARY_REDIRECT
"""The status of a redirect to the storage; others say that the server itself moved."""
_RETRIES = AnnouncedRetry(
    total=_ATTEMPTS,
    backoff_factor=_PAUSE_SECONDS,
    backoff_jitter=_PAUSE_SECONDS,
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

_BUSY_ONLY = _RETRIES.new(connect=0, read=0)
"""Repeats only answers of a proxy or server that is busy; a blob's reader repeats the rest where it broke off."""
_ONCE = urllib3.Retry(total=_ATTEMPTS, connect=0, read=0, status=0, other=0, raise_on_redirect=False)
_HURRIED = _RETRIES.new(connect=1, read=1, status=2)


class Transport:
    """Requests to one server. Nothing is sent before the first request.

    Args:
        token: Sent with every request, where given.
        patience_s: Seconds to wait for a document, twice; by default longer, and more often.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        url_from: str | None = None,
        token_from: str | None = None,
        patience_s: float | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._document_timeout = (
            urllib3.Timeout(connect=CONNECT_SECONDS, read=patience_s) if patience_s else _DOCUMENT_TIMEOUT
        )
        self._peer = ServerInfo(self.url, url_from=url_from, token_from=token_from if token else "")
        self._headers = {"User-Agent": USER_AGENT, "Accept-Encoding": "identity"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._is_hurried = patience_s is not None  # there is another way, which warns
        self._pool = urllib3.PoolManager(
            retries=_HURRIED if self._is_hurried else _RETRIES,
            timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=_READ_SECONDS),
            maxsize=POOLED,
            blocksize=SEND_BYTES,
        )
        self.direct = PresignedClient(self.url)

    @property
    def release(self) -> str | None:
        """What the server's last answer named as its release; None if none did."""
        return self._peer.release

    def close(self) -> None:
        """Close idle connections."""
        self._pool.clear()
        self.direct.close()

    def get(self, path: str, query: Mapping[str, str | int | list[str]] | None = None) -> Any:
        """Return the JSON response of a path.

        Raises:
            ServerUnreachable: No answer.
            BadResponse: The answer is not pt2hub's.
            Pt2hubError: The server's own error, as the class it raised.
        """
        return self._json("GET", f"{path}?{urlencode(query, doseq=True)}" if query else path)

    def fetch(self, cls: type[T], path: str, query: Mapping[str, str | int | list[str]] | None = None) -> T:
        """Return the response of a path as an instance of a class; errors as for `get`."""
        return self._read(cls, self.get(path, query), path)

    def ask(
        self, cls: type[T], method: str, path: str, body: bytes = b"", *, content_type: str = JSON_TYPE
    ) -> T:
        """Send a document as `send` does and return the response as an instance of a class."""
        return self._read(cls, self.send(method, path, body, content_type=content_type), path)

    def poll(
        self, cls: type[T], path: str, etag: str | None, *, wait_s: float
    ) -> tuple[T | None, str | None]:
        """Return a document and its ETag as soon as it differs from a known one; None if it does not within a time.

        Servers that know no ETags answer at once; errors are as for `get`.

        Args:
            etag: The known document's.
            wait_s: How long the server waits for a change, at most 50 s.
        """
        options: dict[str, Any] = {"timeout": wait_timeout(wait_s)}
        if etag:
            options["headers"] = {"If-None-Match": etag}
            path = f"{path}?{urlencode({'wait': f'{wait_s:.1f}'})}"
        response, body = self._answer("GET", path, **options)
        if response.status == HTTPStatus.NOT_MODIFIED:
            return None, etag
        return self._read(cls, self._parse(response, body), path), response.headers.get("ETag")

    def fetch_at_change(self, cls: type[T], path: str, query: Mapping[str, str | int], *, wait_s: float) -> T:
        """Return the response of a path that may be sent only after a while; errors as for `get`."""
        given = urlencode({**query, "wait": f"{wait_s:.1f}"})
        return self._read(cls, self._json("GET", f"{path}?{given}", timeout=wait_timeout(wait_s)), path)

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

    def read_with(self, path: str, header: str) -> tuple[bytes, str | None]:
        """Return the bytes of a small response and one of its headers; errors as for `get`."""
        response, body = self._answer("GET", path)
        return body, response.headers.get(header)

    def delete(self, path: str) -> None:
        """Send one DELETE request with a short timeout; errors as for `get`."""
        with self._open("DELETE", path, timeout=CONNECT_SECONDS, retries=_ONCE):
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

    def size(self, path: str) -> int:
        """Return the length of a blob in bytes.

        Raises:
            Pt2hubError: As for `get`.
        """
        with self._open("HEAD", path) as response:
            return int(response.headers.get("Content-Length", 0))

    def blob(self, path: str, size: int) -> RemoteBlob:
        """Return a blob, to be read in ranges.

        Args:
            size: Its length in bytes.
        """
        return RemoteBlob(self, path, size)

    @contextmanager
    def open_blob(self, path: str, wanted: ByteRange) -> Iterator[urllib3.BaseHTTPResponse]:
        """Request a range of a blob; the response has its bytes, or redirects (307) to the storage.

        Raises:
            ServerUnreachable: No answer, or it broke off.
            Pt2hubError: The server's own error, as the class it raised.
        """
        headers, options = wanted.headers, {"timeout": wanted.timeout, "retries": _BUSY_ONLY}
        with self._guard(), self._send("GET", path, headers=headers, redirect=False, **options) as response:
            if response.status >= HTTPStatus.MULTIPLE_CHOICES and not response.get_redirect_location():
                raise self._peer.failure(response, self._body(response))
            if response.status < HTTPStatus.MULTIPLE_CHOICES or response.status == _ELSEWHERE:
                yield response
                return
        with self._open("GET", path, headers=headers, **options) as response:  # the server itself moved
            yield response

    def _json(self, method: str, path: str, **options: Any) -> Any:
        return self._parse(*self._answer(method, path, **options))

    def _parse(self, response: urllib3.BaseHTTPResponse, body: bytes) -> Any:
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
        if method == "GET":
            options.setdefault("timeout", self._document_timeout)
        vain = 0
        while True:
            try:
                with self._open(method, path, **options) as response:
                    return response, self._body(response)
            except ServerUnreachable as exc:
                vain += 1
                if method != "GET" or "received" not in exc.context or vain == _ATTEMPTS:
                    raise
                time.sleep(jitter(_PAUSE_SECONDS * vain))

    @contextmanager
    def _open(self, method: str, path: str, **options: Any) -> Iterator[urllib3.BaseHTTPResponse]:
        with self._guard(), self._send(method, path, **options) as response:
            if response.status >= HTTPStatus.MULTIPLE_CHOICES and response.status != HTTPStatus.NOT_MODIFIED:
                if response.get_redirect_location():
                    raise self._peer.elsewhere(response)
                raise self._peer.failure(response, self._body(response))
            yield response

    @contextmanager
    def _send(self, method: str, path: str, **options: Any) -> Iterator[urllib3.BaseHTTPResponse]:
        headers = self._headers | options.pop("headers", {})
        options.setdefault("redirect", method in _READING)  # else a file's body would be at its end
        response = self._request(method, path, headers=headers, **options)
        with release_after(response):
            self._peer.meet(response)
            yield response

    def _request(self, method: str, path: str, **options: Any) -> urllib3.BaseHTTPResponse:
        """Send a request, again where the server limits their rate."""
        body: Any = options.get("body")
        start, waited = body.tell() if hasattr(body, "tell") else None, 0.0
        while True:
            with nullcontext() if self._is_hurried else announced_outage(self.url):
                response = self._pool.request(method, self.url + path, preload_content=False, **options)
            total = wait_for_turn(response, waited)
            if total is None:
                return response
            waited = total
            if start is not None:
                body.seek(start)

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


def wait_timeout(wait_s: float) -> urllib3.Timeout:
    """Return the timeout of a request whose answer may come after a while."""
    return urllib3.Timeout(connect=CONNECT_SECONDS, read=wait_s + SMALL_SILENCE_SECONDS)
