"""Requests for a range of a blob, and checks of their answers."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from urllib3 import Timeout

from pt2hub.errors import BadResponse

if TYPE_CHECKING:
    from collections.abc import Generator

    from urllib3 import BaseHTTPResponse

CONNECT_SECONDS = 5.0
SILENCE_SECONDS = 20.0
"""A connection that brings nothing for so long is replaced."""
SMALL_SILENCE_SECONDS = 10.0
"""The same for small reads, which a live server answers at once."""
_SMALL_BYTES = 1 << 20
READ_BYTES = 1 << 18
"""Bytes per read: what a broken connection or a killed process loses at most."""
_PROXY_HINT = "Check for a proxy between client and server that changes responses."


class RangesIgnored(Exception):
    """The answer to a request for a range is the whole blob."""


class SourceChanged(Exception):
    """The bytes behind a URL are not those of the earlier answers."""


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A half-open range of a blob.

    Attributes:
        start: First byte.
        stop: One past the last byte.
        size: Size of the whole blob.
    """

    start: int
    stop: int
    size: int

    @property
    def headers(self) -> dict[str, str]:
        """Headers that request the range; none for the whole blob."""
        last = "" if self.stop == self.size else self.stop - 1
        return {} if self.start == 0 and self.stop == self.size else {"Range": f"bytes={self.start}-{last}"}

    @property
    def timeout(self) -> Timeout:
        """Time-out of the request and of each read."""
        small = self.stop - self.start <= _SMALL_BYTES
        return Timeout(connect=CONNECT_SECONDS, read=SMALL_SILENCE_SECONDS if small else SILENCE_SECONDS)

    def read(self, response: BaseHTTPResponse, *, where: str) -> Generator[bytes]:
        """Yield the bytes of the range from a response.

        Raises:
            RangesIgnored: The response is the whole blob, though only a part was requested.
            BadResponse: It announces another range, or a blob of another size.
        """
        whole = response.status == HTTPStatus.OK
        given = ByteRange(0, self.size, self.size) if whole else self
        announced = response.headers.get("Content-Length")
        found = response.headers.get("Content-Range", "" if whole else "no range")
        if announced != str(given.stop - given.start) or not given.matches(found):
            raise BadResponse(
                f"The answer has {announced} bytes ({found or 'whole'}), "
                f"expected {self.stop - self.start} from {self.start} of {self.size}",
                where=where,
                hint=_PROXY_HINT,
            )
        if whole and self.headers:
            raise RangesIgnored
        # Without decoding, which would copy every byte once more; `identity` was requested.
        yield from response.stream(READ_BYTES, decode_content=False)

    def matches(self, header: str) -> bool:
        """Return whether a `Content-Range` header announces this range; none is needed for a whole blob."""
        size = self.size if header.endswith(f"/{self.size}") else "*"  # an unknown size
        expected = f"bytes {self.start}-{self.stop - 1}/{size}"
        return header == expected or (not header and self.stop - self.start == self.size)
