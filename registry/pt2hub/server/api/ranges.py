"""Bytes that never change, sent whole or in part: conditions, ranges and HEAD, alike for every such route."""

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
    """Bytes under a name that no other bytes ever have.

    Attributes:
        digest: The name; also the ETag.
        size: How many there are.
        content_type: What they are.
        cache_control: How long they may be cached.
        read: The bytes from a first one to before a last one, in pieces.
    """

    digest: str
    size: int
    content_type: str
    cache_control: str
    read: Callable[[int, int], Iterable[bytes]]


def respond(content: Content) -> WerkzeugResponse:
    """Answers the current GET or HEAD.

    Args:
        content: What it asks for.

    Raises:
        PreconditionFailed: `If-Match` asks for other bytes.
        RangeNotSatisfiable: The range begins beyond the end.
    """
    unchanged = is_known(content.digest)
    response = Response(content_type=content.content_type, direct_passthrough=True)
    response.set_etag(content.digest)
    response.headers["Accept-Ranges"] = "bytes"
    response.headers["Cache-Control"] = content.cache_control
    if unchanged:
        response.status_code = HTTPStatus.NOT_MODIFIED
        return response
    asked = _asked(content)
    start, stop = asked or (0, content.size)
    if asked:
        response.status_code = HTTPStatus.PARTIAL_CONTENT
        response.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{content.size}"
    if request.method != "HEAD":  # no file is opened whose bytes nobody reads
        response.response = content.read(start, stop)
    response.content_length = stop - start
    return response


def is_known(digest: str) -> bool:
    """Whether whoever sent the current request says that it has the bytes (`If-None-Match`).

    Args:
        digest: Their name.

    Raises:
        PreconditionFailed: `If-Match` asks for other bytes.
    """
    wanted = request.if_match
    if wanted and not wanted.star_tag and not wanted.contains(digest):
        raise PreconditionFailed("If-Match asks for other bytes than these.")
    return request.if_none_match.contains_weak(digest)


def _asked(content: Content) -> tuple[int, int] | None:
    """The range asked for; None for the whole.

    Several ranges at once, and units other than bytes, may be answered with the whole (RFC 9110, 14.2); a
    condition that names other bytes must be (13.1.5), and HEAD knows no ranges.
    """
    asked, condition = request.range, request.headers.get("If-Range")
    if asked is None or asked.units != "bytes" or len(asked.ranges) != 1 or request.method == "HEAD":
        return None
    if condition not in (None, f'"{content.digest}"'):  # a weak ETag does not count here
        return None
    start = asked.ranges[0][0]
    if -start >= content.size > 0:  # the last so many bytes, of fewer (14.1.2)
        return 0, content.size
    found = asked.range_for_length(content.size)
    if found is None:
        raise RangeNotSatisfiable(
            f"The range begins beyond the end: there are {content.size} bytes.",
            where="Range",
            context={"size": content.size},
        )
    return found
