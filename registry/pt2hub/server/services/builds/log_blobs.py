"""Archived logs: blobs of JSON lines, numbered from 1 without gaps, so that pages are found by counting lines."""

from __future__ import annotations

import bisect
import json
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pt2hub.domain.builds import LogLine
from pt2hub.domain.codec import decode, encode
from pt2hub.domain.digests import canonical_json
from pt2hub.errors import BadResponse
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.builds.logs import ERROR, NOISE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pt2hub.domain.digests import Digest
    from pt2hub.server.blobs.ports import BlobReader

_NOISE_MARK = f'"level":"{NOISE}"'.encode()
"""Cannot occur elsewhere in a line: inside a JSON string its quotes would be escaped."""
_ERROR_MARK = f'"level":"{ERROR}"'.encode()
_ESCAPE = rb"\u001b"
_INDEX_INTERVAL = 1000
_MAX_INDEXED_LOGS = 64
_LOST_LINE = "this line was lost between the worker and the server"


def as_json_lines(lines: Iterable[LogLine]) -> Iterator[bytes]:
    """Yield the lines as the blob holds them, with a warning line in place of each missing one.

    Args:
        lines: In order.
    """
    due = 1
    for line in lines:
        for seq in range(due, line.seq):
            yield _as_json(LogLine(seq, line.at, line.step, "warning", _LOST_LINE))
        yield _as_json(line)
        due = line.seq + 1


def _as_json(line: LogLine) -> bytes:
    return canonical_json(encode(line)) + b"\n"


@dataclass(slots=True)
class _LogIndex:
    """Index of a log, filled while the log is read: byte offsets by line, and the first error."""

    marks: dict[int, int] = field(default_factory=lambda: {0: 0})
    searched: bool = False
    error: int | None = None


class LogBlobs:
    """Reads pages of archived logs.

    A page reads the bytes from the nearest known offset on, not the whole log: the offset of every thousandth line is
    remembered.
    """

    def __init__(self, storage: BlobReader) -> None:
        self._storage = storage
        self._logs: OrderedDict[Digest, _LogIndex] = OrderedDict()

    def page(self, digest: Digest, *, after: int, limit: int, summary: bool = False) -> list[LogLine]:
        """Return the lines after a position.

        Raises:
            NotFound: The log is missing from storage.
            BadResponse: The log is damaged.
        """
        page: list[LogLine] = []
        for raw in self._lines(digest, after):
            if summary and _NOISE_MARK in raw:
                continue
            page.append(_parse_line(raw, digest))
            if len(page) == limit:
                break
        return page

    def first_error(self, digest: Digest) -> int | None:
        """Return the position of the first error line, or None; searched once per log, since archived logs do not change.

        Raises:
            NotFound: The log is missing from storage.
        """
        known = self._index(digest)
        if not known.searched:
            lines = enumerate(self._lines(digest, 0), 1)
            known.error = next((seq for seq, raw in lines if _ERROR_MARK in raw), None)
            known.searched = True
        return known.error

    def holding(self, digest: Digest, text: str) -> Iterator[LogLine]:
        """Yield the lines that may contain a text, in order.

        Colour codes may stand between its letters, so all lines with escape sequences are included.

        Raises:
            NotFound: The log is missing from storage.
            BadResponse: The log is damaged.
        """
        written = json.dumps(text, ensure_ascii=False)[1:-1].lower()
        for raw in self._lines(digest, 0):
            if _ESCAPE in raw or written in raw.decode(errors="replace").lower():
                yield _parse_line(raw, digest)

    def _lines(self, digest: Digest, after: int) -> Iterator[bytes]:
        marks = self._index(digest).marks
        known = sorted(marks)
        seq = known[bisect.bisect_right(known, after) - 1]
        offset = marks[seq]
        rest = b""
        for chunk in self._storage.read(StorageKey.blob(digest), offset):
            data = rest + chunk
            count = data.count(b"\n")
            if seq + count <= after:  # the whole chunk is before the page
                end = data.rfind(b"\n") + 1
                seq, offset, rest = seq + count, offset + end, data[end:]
                marks[seq] = offset
                continue
            *whole, rest = data.split(b"\n")
            for raw in whole:
                seq, offset = seq + 1, offset + len(raw) + 1
                if seq % _INDEX_INTERVAL == 0:
                    marks[seq] = offset
                if seq > after:
                    yield raw

    def _index(self, digest: Digest) -> _LogIndex:
        """Return the index of a log, and evict the least recently used ones."""
        known = self._logs.pop(digest, None) or _LogIndex()
        self._logs[digest] = known
        while len(self._logs) > _MAX_INDEXED_LOGS:
            self._logs.popitem(last=False)
        return known


def _parse_line(raw: bytes, digest: Digest) -> LogLine:
    try:
        return decode(LogLine, json.loads(raw))
    except (ValueError, RecursionError, BadResponse) as exc:
        raise BadResponse("The stored log is damaged: it contains an invalid line", where=digest) from exc
