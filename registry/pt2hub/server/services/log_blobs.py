"""Logs as blobs: JSON lines, numbered 1, 2, 3 and so on, so that a page is found by counting lines."""

from __future__ import annotations

import bisect
import json
from collections import OrderedDict
from typing import TYPE_CHECKING

from pt2hub.domain.builds import LogLine
from pt2hub.domain.codec import decode, encode
from pt2hub.domain.digests import canonical_json
from pt2hub.errors import BadResponse
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.logs import NOISE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pt2hub.domain.digests import Digest
    from pt2hub.server.blobs.ports import Reads

_NOISY = f'"level":"{NOISE}"'.encode()
"""Stands nowhere else in a line: inside of a JSON string its quotes would be escaped."""
_MARK_EVERY = 1000
_KNOWN_LOGS = 64
_LOST = "this line was lost on its way from the worker"


def as_json_lines(lines: Iterable[LogLine]) -> Iterator[bytes]:
    """Lines as the blob holds them; for one that is missing another one says so.

    Args:
        lines: In order.
    """
    due = 1
    for line in lines:
        for seq in range(due, line.seq):
            yield _as_json(LogLine(seq, line.at, line.step, "warning", _LOST))
        yield _as_json(line)
        due = line.seq + 1


def _as_json(line: LogLine) -> bytes:
    return canonical_json(encode(line)) + b"\n"


class LogBlobs:
    """Reads pages of logs that were put away.

    A page costs the bytes from the nearest known place on, not the whole log: while somebody reads on and on, the
    offset of every thousandth line is remembered.
    """

    def __init__(self, storage: Reads) -> None:
        """Nothing is read yet.

        Args:
            storage: Holds the blobs.
        """
        self._storage = storage
        self._marks: OrderedDict[Digest, dict[int, int]] = OrderedDict()

    def page(self, digest: Digest, *, after: int, limit: int, summary: bool = False) -> list[LogLine]:
        """Lines behind a position.

        Args:
            digest: The log.
            after: Position of the last line known.
            limit: Lines at most.
            summary: Leave the compiler's noise out.

        Raises:
            NotFound: The storage lost the log.
            BadResponse: It is damaged.
        """
        page: list[LogLine] = []
        for raw in self._lines(digest, after):
            if summary and _NOISY in raw:
                continue
            page.append(_parsed(raw, digest))
            if len(page) == limit:
                break
        return page

    def _lines(self, digest: Digest, after: int) -> Iterator[bytes]:
        marks = self._marks_of(digest)
        known = sorted(marks)
        seq = known[bisect.bisect_right(known, after) - 1]
        offset = marks[seq]
        rest = b""
        for chunk in self._storage.read(StorageKey.blob(digest), offset):
            data = rest + chunk
            count = data.count(b"\n")
            if seq + count <= after:  # all of it lies before the page
                end = data.rfind(b"\n") + 1
                seq, offset, rest = seq + count, offset + end, data[end:]
                marks[seq] = offset
                continue
            *whole, rest = data.split(b"\n")
            for raw in whole:
                seq, offset = seq + 1, offset + len(raw) + 1
                if seq % _MARK_EVERY == 0:
                    marks[seq] = offset
                if seq > after:
                    yield raw

    def _marks_of(self, digest: Digest) -> dict[int, int]:
        """Offsets behind lines that were passed before; of the logs read last."""
        marks = self._marks.pop(digest, None) or {0: 0}
        self._marks[digest] = marks
        while len(self._marks) > _KNOWN_LOGS:
            self._marks.popitem(last=False)
        return marks


def _parsed(raw: bytes, digest: Digest) -> LogLine:
    try:
        return decode(LogLine, json.loads(raw))
    except (ValueError, RecursionError, BadResponse) as exc:
        raise BadResponse(
            "The stored log is damaged: a line of it is no line of a log", where=digest
        ) from exc
