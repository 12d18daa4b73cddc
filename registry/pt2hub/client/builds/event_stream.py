"""Parser of server-sent event streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.errors import BadResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_EVENT_BYTES = 8 << 20
"""Maximum size of an event; pt2hub's are shorter."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a stream.

    Attributes:
        name: Its type; `message` where the stream names none.
        id: What resumes a stream after it, or an empty string.
    """

    name: str
    data: str
    id: str = ""


def parse(pieces: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of a stream; an incomplete last one is dropped.

    Args:
        pieces: Bytes, cut anywhere.

    Raises:
        BadResponse: An event is too long to be one.
    """
    fields: dict[str, str] = {}
    data: list[str] = []
    size = 0
    for raw in _lines(pieces):
        size += len(raw)
        if size > MAX_EVENT_BYTES:
            raise BadResponse(f"Event is longer than {MAX_EVENT_BYTES} bytes")
        name, _, value = raw.decode("utf-8", "replace").partition(":")
        if not raw:
            if data:
                yield Event(fields.get("event", "message"), "\n".join(data), fields.get("id", ""))
            fields, data, size = {}, [], 0
        elif name == "data":
            data.append(value.removeprefix(" "))
        elif name:  # without a name it is a comment, which keeps the connection alive
            fields[name] = value.removeprefix(" ")


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        if len(rest) > MAX_EVENT_BYTES:
            raise BadResponse(f"Stream line is longer than {MAX_EVENT_BYTES} bytes")
        for line in whole:
            yield line.removesuffix(b"\r")
