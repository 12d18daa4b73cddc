"""Responses with immutable content: conditional requests, ranges and HEAD."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from flask import Response, request
from werkzeug.exceptions import PreconditionFailed

from pt2hub.errors import RangeNotSatisfiable

if TYPE_CHECKING:
    from werkzeug.wrappers import Response as WerkzeugResponse


@dataclass(frozen=True, slots=True)
class Content:
    """Immutable content.

    Attributes:
        digest: Digest of the content, used as the ETag.
        size: Size in bytes.
        content_type: Media type.
        cache_control: Value of the `Cache-Control` header.
        read: Function that yields the bytes of a range in pieces.
    """

    digest: str
    size: int
    content_type: str
    cache_control: str
    read: Callable[[int, int], Iterable[bytes]]


def respond(content: Content) -> WerkzeugResponse:
    """Create the response to the current GET or HEAD request.

    Args:
        content: The requested content.

    Raises:
        PreconditionFailed: `If-Match` does not match.
        RangeNotSatisfiable: The range starts beyond the end.
    """
    unchanged = is_known(content.digest)
    response = Response(content_type=content.content_type, direct_passthrough=True)
    response.set_etag(content.digest)
    response.headers["Accept-Ranges"] = "bytes"
    response.headers["Cache-Control"] = content.cache_control
    if unchanged:
        response.status_code = HTTPStatus.NOT_MODIFIED
        return response
    asked = _parse_range(content)
    start, stop = asked or (0, content.size)
    if asked:
        response.status_code = HTTPStatus.PARTIAL_CONTENT
        response.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{content.size}"
    if request.method != "HEAD":  # HEAD opens no file
        response.response = content.read(start, stop)
    response.content_length = stop - start
    return response


def is_known(digest: str) -> bool:
    """Return whether the client already has the content (`If-None-Match`).

    Args:
        digest: Digest of the content.

    Raises:
        PreconditionFailed: `If-Match` does not match.
    """
    wanted = request.if_match
    if wanted and not wanted.star_tag and not wanted.contains(digest):
        raise PreconditionFailed("If-Match does not match the content.")
    return request.if_none_match.contains_weak(digest)


def _parse_range(content: Content) -> tuple[int, int] | None:
    """Return the requested range; None for the whole content.

    Multiple ranges and units other than bytes may be answered with the whole content (RFC 9110, 14.2), a condition that
    does not match must be (13.1.5), and HEAD ignores ranges.
    """
    asked, condition = request.range, request.headers.get("If-Range")
    if asked is None or asked.units != "bytes" or len(asked.ranges) != 1 or request.method == "HEAD":
        return None
    if condition not in (None, f'"{content.digest}"'):  # a weak ETag does not count here
        return None
    start = asked.ranges[0][0]
    if -start >= content.size > 0:  # a suffix longer than the content (14.1.2)
        return 0, content.size
    found = asked.range_for_length(content.size)
    if found is None:
        raise RangeNotSatisfiable(
            f"The range starts beyond the end of the content ({content.size} bytes).",
            where="Range",
            context={"size": content.size},
        )
    return found
