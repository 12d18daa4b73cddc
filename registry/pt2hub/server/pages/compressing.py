"""Smaller answers for readers who take them so.

Pages tell no secret by their length: the proof that forms carry is masked anew in each (see `sessions`).
"""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

from flask import request

if TYPE_CHECKING:
    from flask import Response

_TYPES = frozenset({"text/html", "text/csv", "text/plain", "application/json"})
_LEAST = 1000
"""Bytes below which an answer fits into a packet as it is."""
_LEVEL = 5
"""A tenth larger than the smallest, in a third of the time."""


def takes_gzip() -> bool:
    """Whether the reader of the current request's answer takes it compressed."""
    return request.accept_encodings["gzip"] > 0


def compress(response: Response) -> Response:
    """Compresses texts that were made whole; streams and files go as they are.

    Args:
        response: Of the current request.
    """
    if response.mimetype not in _TYPES or response.is_streamed or response.direct_passthrough:
        return response
    response.vary.add("Accept-Encoding")
    data = response.get_data()
    if len(data) >= _LEAST and not response.content_encoding and takes_gzip():
        response.set_data(gzip.compress(data, _LEVEL, mtime=0))
        response.content_encoding = "gzip"
    return response
