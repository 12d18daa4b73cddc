"""Windows of logs for display: the lines around, before or after a line, and text search; bounded for any log size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, Protocol, TypeVar

from pt2hub.domain.digests import Digest
from pt2hub.domain.terminal import plain, search_pattern
from pt2hub.errors import INVISIBLE_CHARACTERS, InvalidInput
from pt2hub.server.db.stores.builds.logs import NOISE, LogStore
from pt2hub.server.services.builds.log_blobs import LogBlobs
from pt2hub.server.services.builds.logs import attempt_number
from pt2hub.server.views.logs import LogMatches, LogPosition, LogWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pt2hub.domain.builds import LogLine
    from pt2hub.server.blobs.ports import BlobReader
    from pt2hub.server.db.engine import Sessions

MAX_WINDOW_LINES = 1000
MAX_WINDOW_CHARS = 1 << 18
"""A window of very long lines has fewer of them."""
MAX_MATCHES = 10_000
MAX_SEARCH_CHARS = 200
_LINE_OVERHEAD_CHARS = 64
"""Cost of a line in addition to its text."""
_END = LogPosition()
T = TypeVar("T")


class _Log(Protocol):
    """An attempt's log, in the database or archived."""

    def extent(self) -> tuple[int, int | None]:
        """Return the positions of the last line and of the first error."""

    def after(self, seq: int, limit: int, *, summary: bool) -> list[LogLine]:
        """Return the lines after a position."""

    def before(self, seq: int, limit: int, *, summary: bool) -> list[LogLine]:
        """Return the nearest lines before a position, in order."""

    def holding(self, text: str) -> Iterable[LogLine]:
        """Return the lines that may contain a text."""


class LogWindowService:
    """Windows of logs, and text search in them."""

    def __init__(self, sessions: Sessions, storage: BlobReader) -> None:
        self._sessions = sessions
        self._archived = LogBlobs(storage)

    def window(
        self,
        build_id: str,
        *,
        attempt: int | None = None,
        position: LogPosition = _END,
        summary: bool = False,
    ) -> LogWindow:
        """Return a window of an attempt's log, at most `MAX_WINDOW_LINES` lines.

        Args:
            attempt: Its number; None for the latest.

        Raises:
            NotFound: The build or attempt does not exist, or the log is missing from storage.
        """
        number, found = self._read(build_id, attempt, lambda log: _part(log, position, summary))
        return replace(found, attempt=number)

    def first_error(self, build_id: str, attempt: int) -> int | None:
        """Return the position of the first error line of an attempt's log, or None.

        Raises:
            NotFound: The build or attempt does not exist, or the log is missing from storage.
        """
        return self._read(build_id, attempt or None, lambda log: log.extent()[1])[1]

    def last(self, build_id: str, attempt: int) -> int:
        """Return the position of the last line of an attempt's log, 0 where it is empty; cheap enough to poll."""
        with self._sessions.begin() as session:
            store = LogStore(session)
            last = store.last(build_id, attempt)
            archived = store.archived_log(build_id, attempt)
        return max(last, archived.lines if archived else 0)

    def matches(
        self, build_id: str, text: str, *, attempt: int | None = None, summary: bool = False
    ) -> LogMatches:
        """Return the lines of an attempt's log that contain a text, ignoring case, at most `MAX_MATCHES`.

        Args:
            attempt: The attempt's number; None for the latest.

        Raises:
            InvalidInput: The text is too long.
            NotFound: The build or attempt does not exist, or the log is missing from storage.
        """
        if len(text) > MAX_SEARCH_CHARS:
            raise InvalidInput(
                f"The search text is too long ({len(text)} characters, at most {MAX_SEARCH_CHARS})",
                where="q",
                hint="Search for a shorter part of it.",
            )
        if text != text.translate(INVISIBLE_CHARACTERS):  # no displayed line contains such characters
            return LogMatches(())
        return self._read(build_id, attempt, lambda log: _matches(log, text, summary))[1]

    def _read(self, build_id: str, attempt: int | None, read: Callable[[_Log], T]) -> tuple[int, T]:
        """Read a log from the database, or from storage once it is archived."""
        with self._sessions.begin() as session:
            store = LogStore(session)
            number = attempt_number(session, build_id, attempt)
            found = read(_Rows(store, build_id, number))
            archived = store.archived_log(build_id, number)
        if archived is None:
            return number, found
        return number, read(_Blob(self._archived, archived.digest, archived.lines))


@dataclass(frozen=True, slots=True)
class _Rows:
    store: LogStore
    build_id: str
    attempt: int

    def extent(self) -> tuple[int, int | None]:
        return self.store.extent(self.build_id, self.attempt)

    def after(self, seq: int, limit: int, *, summary: bool) -> list[LogLine]:
        return self.store.rows(self.build_id, self.attempt, after=seq, limit=limit, summary=summary)

    def before(self, seq: int, limit: int, *, summary: bool) -> list[LogLine]:
        return self.store.rows_before(self.build_id, self.attempt, before=seq, limit=limit, summary=summary)

    def holding(self, text: str) -> Iterable[LogLine]:
        return self.store.rows_holding(self.build_id, self.attempt, text)


@dataclass(frozen=True, slots=True)
class _Blob:
    blobs: LogBlobs
    digest: Digest
    lines: int

    def extent(self) -> tuple[int, int | None]:
        return self.lines, self.blobs.first_error(self.digest)

    def after(self, seq: int, limit: int, *, summary: bool) -> list[LogLine]:
        if seq >= self.lines:
            return []
        return self.blobs.page(self.digest, after=seq, limit=limit, summary=summary)

    def before(self, seq: int, limit: int, *, summary: bool) -> list[LogLine]:
        """Read backwards in growing steps, since a compiler may fill most of a log with noise."""
        found: list[LogLine] = []
        end = min(seq, self.lines + 1)
        step = limit
        while end > 1 and len(found) < limit:
            begin = max(1, end - step)
            page = self.blobs.page(self.digest, after=begin - 1, limit=end - begin, summary=summary)
            found = [line for line in page if line.seq < end] + found
            end, step = begin, 4 * step
        return found[-limit:]

    def holding(self, text: str) -> Iterable[LogLine]:
        return self.blobs.holding(self.digest, text)


def _part(log: _Log, position: LogPosition, summary: bool) -> LogWindow:
    last, error = log.extent()
    before: list[LogLine] = []
    following: list[LogLine] = []
    most, characters = MAX_WINDOW_LINES, MAX_WINDOW_CHARS
    if position.at is not None:
        most, characters = most // 2, characters // 2
        before = log.before(position.at, most + 1, summary=summary)
        following = log.after(position.at - 1, most + 1, summary=summary)
    elif position.after is not None:
        following = log.after(position.after, most + 1, summary=summary)
    else:
        end = last + 1 if position.before is None else position.before
        before = log.before(end, most + 1, summary=summary)
    first, second = _fitting(before[::-1], most, characters)[::-1], _fitting(following, most, characters)
    return LogWindow(
        attempt=0,
        lines=(*first, *second),
        last=max([last, *(line.seq for line in second[-1:])]),  # it may have grown meanwhile
        error=error,
        earlier=len(first) < len(before) or bool(position.after),
        later=len(second) < len(following) or (position.before is not None and position.before <= last),
    )


def _fitting(lines: list[LogLine], most: int, characters: int) -> list[LogLine]:
    """Return the first lines that fit the limits, at least one."""
    sizes = accumulate(len(line.text) + _LINE_OVERHEAD_CHARS for line in lines[:most])
    return lines[: max(1, sum(1 for _ in takewhile(lambda size: size <= characters, sizes)))]


def _matches(log: _Log, text: str, summary: bool) -> LogMatches:
    pattern, noise = search_pattern(text), 0
    positions: list[int] = []
    for line in log.holding(text):
        if not pattern.search(plain(line.text)):
            continue
        if summary and line.level == NOISE:
            noise += 1
        elif len(positions) == MAX_MATCHES:
            return LogMatches(tuple(positions), noise, more=True)
        else:
            positions.append(line.seq)
    return LogMatches(tuple(positions), noise)
