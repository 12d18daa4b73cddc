"""HTTP to a pt2hub server: the one seam where urllib3's exceptions and foreign answers become our errors."""

from __future__ import annotations

import json
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlencode

import urllib3

from pt2hub import __version__
from pt2hub.domain.digests import CHUNK
from pt2hub.errors import BadResponse, ServerUnreachable, from_dict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

JSON_TYPE = "application/json"
PROBLEM_TYPE = "application/problem+json"
MAX_ANSWER_BYTES = 64 << 20
"""An answer that is no blob: a spec, a view, a manifest. Anything larger is not pt2hub's."""
_CONNECT_SECONDS = 5.0
_READ_SECONDS = 60.0
_ATTEMPTS = 3
_RETRIES = urllib3.Retry(
    total=_ATTEMPTS,
    backoff_factor=0.2,
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


class Transport:
    """Requests to one server. Nothing is sent before the first request."""

    def __init__(self, url: str, *, token: str | None = None) -> None:
        """Prepares the connection pool.

        Args:
            url: The server's address.
            token: Sent with every request, where given.
        """
        self.url = url.rstrip("/")
        self._headers = {"User-Agent": f"pt2hub/{__version__}", "Accept-Encoding": "identity"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._pool = urllib3.PoolManager(
            retries=_RETRIES, timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS)
        )

    def close(self) -> None:
        """Closes idle connections."""
        self._pool.clear()

    def get(self, path: str, query: Mapping[str, str | int] | None = None) -> Any:  # noqa: ANN401  # JSON
        """The JSON value that a path answers.

        Args:
            path: Below the server's address.
            query: Parameters.

        Raises:
            ServerUnreachable: No answer.
            BadResponse: The answer is not pt2hub's.
            Pt2hubError: The server's own error, as the class it raised.
        """
        return self._json("GET", f"{path}?{urlencode(query)}" if query else path)

    def post(self, path: str, body: bytes, *, content_type: str = JSON_TYPE) -> Any:  # noqa: ANN401  # JSON
        """Sends a document once and returns the JSON answer; errors as for `get`."""
        return self._json("POST", path, body=body, headers={"Content-Type": content_type})

    def read(self, path: str) -> bytes:
        """The bytes of a small answer, such as a manifest; errors as for `get`."""
        with self._open("GET", path) as response:
            return self._body(response)

    def exists(self, path: str) -> bool:
        """Whether there is something at a path; errors as for `get`."""
        with self._guard(), self._send("HEAD", path) as response:
            if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR and _media_type(response) == PROBLEM_TYPE:
                raise ServerUnreachable(  # the answer to HEAD has no body that would say more
                    f"The server answered HTTP {response.status}",
                    where=self.url + path,
                    hint="Try again; if it stays so, look at the server's log.",
                )
            if response.status not in (HTTPStatus.OK, HTTPStatus.NOT_FOUND):
                raise self._foreign(response, b"")
            return response.status == HTTPStatus.OK

    def put(self, path: str, file: BinaryIO, size: int) -> None:
        """Uploads a file.

        Args:
            path: Below the server's address.
            file: Positioned at its begin; rewound where the upload is tried again.
            size: Its length in bytes.

        Raises:
            Pt2hubError: As for `get`.
        """
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        with self._open("PUT", path, body=file, headers=headers) as response:
            self._body(response)

    def stream(self, path: str, size: int) -> Iterator[bytes]:
        """The bytes of a blob, in pieces; resumed where the connection breaks.

        Args:
            path: Below the server's address.
            size: How many there must be.

        Raises:
            ServerUnreachable: The connection broke and broke again.
            BadResponse: The answer has another length.
            Pt2hubError: The server's own error, as the class it raised.
        """
        done = 0
        for attempt in range(_ATTEMPTS):
            try:
                for chunk in self._pieces(path, done, size):
                    done += len(chunk)
                    yield chunk
            except ServerUnreachable:
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return

    def _pieces(self, path: str, start: int, size: int) -> Iterator[bytes]:
        headers = {"Range": f"bytes={start}-"} if start else {}
        with self._open("GET", path, headers=headers) as response:
            announced = response.headers.get("Content-Length")
            begins = response.headers.get("Content-Range", "bytes 0-").partition("-")[0]
            if announced != str(size - start) or begins != f"bytes {start}":
                raise BadResponse(
                    f"The blob was announced with {announced} bytes from {begins.removeprefix('bytes ')} "
                    f"where {size - start} from {start} belong",
                    where=self.url + path,
                )
            yield from response.stream(CHUNK)

    def _json(self, method: str, path: str, **options: Any) -> Any:  # noqa: ANN401  # urllib3's and JSON
        with self._open(method, path, **options) as response:
            body = self._body(response)
            if _media_type(response) != JSON_TYPE:
                raise self._foreign(response, body)
        try:
            return json.loads(body)
        except ValueError as exc:
            raise self._foreign(response, body) from exc

    @contextmanager
    def _open(self, method: str, path: str, **options: Any) -> Iterator[urllib3.BaseHTTPResponse]:  # noqa: ANN401  # urllib3's
        with self._guard(), self._send(method, path, **options) as response:
            if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                raise self._failure(response)
            yield response

    @contextmanager
    def _send(self, method: str, path: str, **options: Any) -> Iterator[urllib3.BaseHTTPResponse]:  # noqa: ANN401  # urllib3's
        headers = self._headers | options.pop("headers", {})
        response = self._pool.request(
            method, self.url + path, headers=headers, preload_content=False, **options
        )
        try:
            yield response
            response.drain_conn()
        except BaseException:
            response.close()  # unread bytes would be taken for the next answer
            raise
        finally:
            response.release_conn()

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except urllib3.exceptions.HTTPError as exc:
            raise ServerUnreachable(
                f"The server did not answer: {_reason(exc)}",
                where=self.url,
                hint="Start one with `pt2hub up`, or set PT2HUB_URL to the address of yours.",
            ) from exc

    def _body(self, response: urllib3.BaseHTTPResponse) -> bytes:
        body: bytes = response.read(MAX_ANSWER_BYTES + 1)
        if len(body) > MAX_ANSWER_BYTES:
            response.close()
            raise BadResponse(f"The answer is longer than {MAX_ANSWER_BYTES} bytes", where=self.url)
        return body

    def _failure(self, response: urllib3.BaseHTTPResponse) -> Exception:
        body = self._body(response)
        if _media_type(response) != PROBLEM_TYPE:
            return self._foreign(response, body)
        try:
            return from_dict(json.loads(body))
        except (ValueError, TypeError, AttributeError):
            return self._foreign(response, body)

    def _foreign(self, response: urllib3.BaseHTTPResponse, body: bytes) -> BadResponse:
        start = " ".join(body[:200].decode("utf-8", "replace").split())[:60]
        kind = _media_type(response) or "no content type"
        return BadResponse(
            f"HTTP {response.status} with {kind} is not pt2hub's answer" + (f": {start!r}" if start else ""),
            where=self.url,
            hint="Check that PT2HUB_URL names a pt2hub server and no proxy or login page stands before it.",
        )


def _media_type(response: urllib3.BaseHTTPResponse) -> str:
    return str(response.headers.get("Content-Type", "")).partition(";")[0].strip().lower()


def _reason(exc: urllib3.exceptions.HTTPError) -> str:
    inner = getattr(exc, "reason", None) or exc
    words = getattr(inner, "message", None) or str(inner)
    return str(words).rpartition("): ")[2] or type(inner).__name__
