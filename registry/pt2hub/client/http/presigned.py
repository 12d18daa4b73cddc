"""Storage requests with presigned URLs.

The query of a presigned URL is a secret and never appears in errors.
"""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import urllib3

from pt2hub.client.http.server_info import cut, reason, release_after
from pt2hub.errors import BadResponse, StorageFull, StorageUnavailable
from pt2hub.retry import jitter
from pt2hub.wire.compatibility import USER_AGENT
from pt2hub.wire.uploads import FULL_CODES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pt2hub.client.http.ranges import ByteRange
    from pt2hub.client.http.transfers import Slice
    from pt2hub.wire.uploads import UploadRequest

PARALLEL = 4
"""Number of parts sent concurrently."""
SEND_BYTES = 1 << 16
"""Bytes written to a socket at once. Each write must finish within the connection timeout, urllib3's only limit on
sending, so larger pieces would fail on a slow line.
"""
POOLED = 16
"""Connections kept open per server: those of the largest number of concurrent reads."""
_CONNECT_SECONDS = 10.0
_READ_SECONDS = 60.0
_WAITS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Seconds before each retry."""
_STARTED = 4096
"""Bytes of an error response that are read."""
_CODE = re.compile(rb"<Code>([A-Za-z0-9]{1,60})</Code>")
_AGAIN = (
    HTTPStatus.BAD_REQUEST,  # bytes that were changed on the way (BadDigest), or came too slowly (RequestTimeout)
    HTTPStatus.FORBIDDEN,  # an expired signature
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.CONFLICT,  # ConditionalRequestConflict: another create of the same object is under way
    HTTPStatus.TOO_MANY_REQUESTS,
)


class PresignedClient:
    """Requests to storage servers. Nothing is sent before the first request.

    Args:
        server: Address of the pt2hub server. Where it is https, so must the storage's be.
    """

    def __init__(self, server: str) -> None:
        self._secure = server.startswith("https:")
        self._pool = urllib3.PoolManager(
            timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS),
            maxsize=POOLED,
            blocksize=SEND_BYTES,
        )

    def close(self) -> None:
        """Close idle connections."""
        self._pool.clear()

    @contextmanager
    def open(self, url: str, wanted: ByteRange) -> Iterator[urllib3.BaseHTTPResponse]:
        """Request a range of the bytes at a URL, without retries.

        Raises:
            StorageUnavailable: The storage did not answer, refused, or broke off.
            BadResponse: The address may not be followed.
        """
        with self._sent("GET", url, wanted.headers, timeout=wanted.timeout) as response:
            if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                raise _refusal(response, url)
            yield response

    def fetch(self, url: str, limit: int) -> bytes:
        """Return the bytes at a URL, without retries; errors as for `read`.

        Args:
            limit: The most bytes that are taken.
        """
        with self._sent("GET", url, {}) as response:
            if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                raise _refusal(response, url)
            data: bytes = response.read(limit + 1)
        if len(data) > limit:
            raise BadResponse(f"The object is longer than {limit} bytes", where=redact_url(url))
        return data

    def put(self, sign: Callable[[], UploadRequest | None], body: Callable[[], Slice], size: int) -> str:
        """Send bytes; retry if the storage fails or is busy, or the signature has expired.

        Args:
            sign: Returns a presigned request; called again if the signature has expired. None ends the retries,
                because the bytes are stored already.

        Returns:
            The ETag; empty if the object exists already.

        Raises:
            StorageUnavailable: The storage did not accept the bytes.
            StorageFull: The storage is full.
        """
        request = sign()
        for wait in _WAITS:
            try:
                return self._put(request, body, size)
            except StorageUnavailable as exc:
                status = exc.context.get("status", HTTPStatus.SERVICE_UNAVAILABLE)
                if status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in _AGAIN:
                    raise
            time.sleep(jitter(wait))
            if status == HTTPStatus.FORBIDDEN:
                request = sign()
        return self._put(request, body, size)

    def _put(self, request: UploadRequest | None, body: Callable[[], Slice], size: int) -> str:
        if request is None:
            return ""
        headers = request.headers | {"Content-Length": str(size)}
        with body() as opened, self._sent(request.method, request.url, headers, body=opened) as response:
            if response.status == HTTPStatus.PRECONDITION_FAILED:
                return ""
            if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                raise _refusal(response, request.url)
            return str(response.headers.get("ETag", ""))

    @contextmanager
    def _sent(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        **options: Any,
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        self._check(url)
        given = urllib3.HTTPHeaderDict({"User-Agent": USER_AGENT, "Accept-Encoding": "identity"})
        for name, value in headers.items():
            given[name] = value  # whatever the case of the name: a signed Content-Length must not come twice
        try:
            response = self._pool.request(
                method,
                url,
                headers=given,
                preload_content=False,
                redirect=False,
                retries=False,  # urllib3's own would log the address
                **options,
            )
            with release_after(response):
                yield response
        except urllib3.exceptions.HTTPError as exc:
            raise _silence(exc, url) from exc

    def _check(self, url: str) -> None:
        try:
            address = urllib3.util.parse_url(url)
        except urllib3.exceptions.LocationParseError:
            address = urllib3.util.Url()
        if address.scheme not in {"http", "https"} or not address.host:
            raise BadResponse(
                "The server sent an invalid storage URL",
                where=redact_url(url),
                hint="Check for a proxy in front of the server that changes its responses.",
            )
        if self._secure and address.scheme != "https":
            raise BadResponse(
                "The server uses https but sent a storage URL without it",
                where=redact_url(url),
                hint="Ask the server's operator to set PT2HUB_S3_PUBLIC_ENDPOINT_URL to an https address.",
            )


def redact_url(url: str) -> str:
    """Return a presigned URL without its secret query."""
    return url.partition("?")[0][:200]


def _refusal(response: urllib3.BaseHTTPResponse, url: str) -> StorageUnavailable | StorageFull:
    found = _CODE.search(response.read(_STARTED))
    code = found[1].decode() if found else ""
    said = f"The storage, not pt2hub's server, answered HTTP {response.status} {code}".rstrip()
    context = {"status": response.status, "s3_code": code}
    if response.status == HTTPStatus.INSUFFICIENT_STORAGE or code in FULL_CODES:
        return StorageFull(
            said,
            where=redact_url(url),
            hint="Ask the server's operator to free space there.",
            context=context,
        )
    return StorageUnavailable(
        said,
        where=redact_url(url),
        hint="Try again; if it persists, ask the server's operator to check the storage's log.",
        context=context,
    )


def _silence(exc: urllib3.exceptions.HTTPError, url: str) -> StorageUnavailable:
    came = cut(exc)
    if came:
        return StorageUnavailable(
            f"The storage, not pt2hub's server, closed the connection after {came[0]} of {sum(came)} bytes",
            where=redact_url(url),
            hint="Try again; if it persists, check for a proxy in front of the storage.",
        )
    return StorageUnavailable(
        f"The storage, not pt2hub's server, did not answer: {reason(exc)}",
        where=redact_url(url),
        hint="The server redirects clients to its storage. If this machine cannot reach "
        f"{urllib3.util.parse_url(url).host}, ask the server's operator to set PT2HUB_S3_PUBLIC_ENDPOINT_URL to a "
        "reachable address.",
    )
