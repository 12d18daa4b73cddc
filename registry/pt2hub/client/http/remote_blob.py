"""A blob on a server, read in ranges."""

from __future__ import annotations

from contextlib import closing
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

from pt2hub.client.http.presigned import redact_url
from pt2hub.client.http.ranges import ByteRange, RangesIgnored, SourceChanged
from pt2hub.errors import StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager

    from urllib3 import BaseHTTPResponse

    from pt2hub.client.http.presigned import PresignedClient

STORAGE_CONNECTIONS = 12
"""Concurrent reads from a storage: enough where each connection is capped at a tenth of the line."""
SERVER_CONNECTIONS = 4
"""Concurrent reads from a pt2hub server, which answers each in one of its 16 threads."""


class BlobHost(Protocol):
    """A server with blobs, such as a `Transport`.

    Attributes:
        url: Its address.
        direct: Sends requests to its storage.
    """

    url: str
    direct: PresignedClient

    def open_blob(self, path: str, wanted: ByteRange) -> AbstractContextManager[BaseHTTPResponse]:
        """Request a range of a blob; the response has its bytes, or redirects (307) to the storage."""


class RemoteBlob:
    """A blob on a server, or in its storage where the server redirects there. Nothing is sent before the first read.

    Attributes:
        connections: How many concurrent reads pay, as far as known; one before the first answer.
        ranged: Whether ranges are answered; False once a proxy or server ignored one.
        seal: URL and ETag of the answers, empty if unknown: equal seals mean equal bytes.

    Args:
        size: Its length in bytes.
    """

    def __init__(self, transport: BlobHost, path: str, size: int) -> None:
        self.connections = 1
        self.ranged = True
        self.seal = ""
        self._transport = transport
        self._path = path
        self._size = size
        self._address: str | None = None

    @property
    def url(self) -> str:
        """Address of the blob on the server."""
        return self._transport.url + self._path

    @property
    def server(self) -> str:
        """Address of the server."""
        return self._transport.url

    def read(self, start: int, stop: int) -> Generator[bytes]:
        """Yield the bytes of a range, without retries. Several threads may read at a time.

        Raises:
            ServerUnreachable: The server did not answer, or broke off.
            StorageUnavailable: The storage did not answer, refused, or broke off.
            RangesIgnored: The answer was the whole blob; later reads skip to their first byte.
            SourceChanged: The storage has other bytes than for an earlier read.
            BadResponse: The answer has another length.
            Pt2hubError: The server's own error, as the class it raised.
        """
        wanted = ByteRange(start, stop, self._size)
        if not self.ranged:
            yield from self._skip_to(wanted)
            return
        try:
            yield from self._read(wanted)
        except RangesIgnored:
            self.ranged, self.connections = False, 1
            raise

    def _skip_to(self, wanted: ByteRange) -> Generator[bytes]:
        """Read the whole blob and drop what comes before the range."""
        at = 0
        with closing(self._read(ByteRange(0, wanted.size, wanted.size))) as chunks:
            for chunk in chunks:
                begin, at = at, at + len(chunk)
                if at > wanted.start:
                    yield chunk[max(0, wanted.start - begin) : wanted.stop - begin]
                if at >= wanted.stop:
                    return

    def _read(self, wanted: ByteRange) -> Generator[bytes]:
        address = self._address
        if address is None:
            with self._transport.open_blob(self._path, wanted) as response:
                if response.status != HTTPStatus.TEMPORARY_REDIRECT:
                    yield from self._receive(response, wanted, self.url, SERVER_CONNECTIONS)
                    return
                self._address = address = str(response.headers["Location"])
                self.connections = STORAGE_CONNECTIONS if self.ranged else 1
        try:
            with self._transport.direct.open(address, wanted) as response:
                yield from self._receive(response, wanted, redact_url(address), STORAGE_CONNECTIONS)
        except StorageUnavailable as exc:
            if exc.context.get("status") == HTTPStatus.FORBIDDEN and self._address == address:
                self._address = None  # its signature has expired: the next read asks for another one
            raise

    def _receive(
        self, response: BaseHTTPResponse, wanted: ByteRange, where: str, connections: int
    ) -> Generator[bytes]:
        etag = response.headers.get("ETag", "").removeprefix("W/")
        seal = f"{where} {etag}" if etag else ""
        known = self.seal
        if known and seal and known != seal and known.startswith(f"{where} "):
            raise SourceChanged
        self.seal = seal or known
        self.connections = connections if self.ranged else 1
        yield from wanted.read(response, where=where)
