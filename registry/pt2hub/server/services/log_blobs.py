"""Logs as blobs: JSON lines, numbered 1, 2, 3 and so on, so that a page is found by counting lines."""

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
from pt2hub.server.db.stores.logs import ERROR, NOISE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pt2hub.domain.digests import Digest
    from pt2hub.server.blobs.ports import Reads

_NOISY = f'"level":"{NOISE}"'.encode()
"""Stands nowhere else in a line: inside of a JSON string its quotes would be escaped."""
_ERRONEOUS = f'"level":"{ERROR}"'.encode()
_ESCAPE = rb"\u001b"
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


@dataclass(slots=True)
class _Known:
    """What was learnt of a log while it was read.

    Attributes:
        marks: Offsets behind lines that were passed.
        searched: Whether its first error was looked for,
        error: and that line's position.
    """

    marks: dict[int, int] = field(default_factory=lambda: {0: 0})
    searched: bool = False
    error: int | None = None


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
        self._logs: OrderedDict[Digest, _Known] = OrderedDict()

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

    def first_error(self, digest: Digest) -> int | None:
        """Position of the first line that tells of an error; None without any. Looked for once, since logs stay.

        Raises:
            NotFound: The storage lost the log.
        """
        known = self._known(digest)
        if not known.searched:
            lines = enumerate(self._lines(digest, 0), 1)
            known.error = next((seq for seq, raw in lines if _ERRONEOUS in raw), None)
            known.searched = True
        return known.error

    def holding(self, digest: Digest, text: str) -> Iterator[LogLine]:
        """Lines, in order, without those that do not hold a text.

        Colours may stand between the letters of what is looked for, so lines with escape sequences all come.

        Args:
            digest: The log.
            text: What is looked for, in any letters' case.

        Raises:
            NotFound: The storage lost the log.
            BadResponse: It is damaged.
        """
        written = json.dumps(text, ensure_ascii=False)[1:-1].lower()
        for raw in self._lines(digest, 0):
            if _ESCAPE in raw or written in raw.decode(errors="replace").lower():
                yield _parsed(raw, digest)

    def _lines(self, digest: Digest, after: int) -> Iterator[bytes]:
        marks = self._known(digest).marks
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

    def _known(self, digest: Digest) -> _Known:
        """What is known of a log; of those read last."""
        known = self._logs.pop(digest, None) or _Known()
        self._logs[digest] = known
        while len(self._logs) > _KNOWN_LOGS:
            self._logs.popitem(last=False)
        return known


def _parsed(raw: bytes, digest: Digest) -> LogLine:
    try:
        return decode(LogLine, json.loads(raw))
    except (ValueError, RecursionError, BadResponse) as exc:
        raise BadResponse(
            "The stored log is damaged: a line of it is no line of a log", where=digest
        ) from exc
