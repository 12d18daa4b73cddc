"""Parts of logs for who leafs through them: around a line, before or behind one, and where a text stands.

However long a log is, what is answered at once has a bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, Protocol, TypeVar

from pt2hub.domain.digests import Digest
from pt2hub.domain.terminal import plain, sought
from pt2hub.errors import UNSEEN, InvalidInput
from pt2hub.server.db.stores.logs import NOISE, LogStore
from pt2hub.server.services.log_blobs import LogBlobs
from pt2hub.server.services.logs import attempt_number
from pt2hub.wire.logs import LogMatches, LogPlace, LogWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pt2hub.domain.builds import LogLine
    from pt2hub.server.blobs.ports import Reads
    from pt2hub.server.db.engine import Sessions

WINDOW_LINES = 1000
WINDOW_CHARACTERS = 1 << 18
"""Of lines that are all very long a window has fewer."""
MAX_MATCHES = 10_000
MAX_SOUGHT = 200
_LINE_CHARACTERS = 64
"""What a line costs beside its text."""
_END = LogPlace()
T = TypeVar("T")


class _Log(Protocol):
    """One attempt's log, wherever it lies."""

    def extent(self) -> tuple[int, int | None]:
        """Positions of the last line and of the first error."""

    def after(self, seq: int, limit: int, *, summary: bool) -> list[LogLine]:
        """Lines behind a position."""

    def before(self, seq: int, limit: int, *, summary: bool) -> list[LogLine]:
        """Lines in front of a position, the nearest, in order."""

    def holding(self, text: str) -> Iterable[LogLine]:
        """Lines that may hold a text; those left out do not."""


class LogWindowService:
    """Parts of logs."""

    def __init__(self, sessions: Sessions, storage: Reads) -> None:
        """Is built by the container.

        Args:
            sessions: Opens transactions.
            storage: Has the logs of attempts that are over.
        """
        self._sessions = sessions
        self._put_away = LogBlobs(storage)

    def window(
        self, build_id: str, *, attempt: int | None = None, place: LogPlace = _END, summary: bool = False
    ) -> LogWindow:
        """A part of an attempt's log, as many lines as `WINDOW_LINES` at most.

        Args:
            build_id: The build.
            attempt: Its number; None for the latest.
            place: Which part.
            summary: Leave the compiler's noise out.

        Raises:
            NotFound: There is no such build or attempt, or the storage lost the log.
        """
        number, found = self._read(build_id, attempt, lambda log: _part(log, place, summary))
        return replace(found, attempt=number)

    def first_error(self, build_id: str, attempt: int) -> int | None:
        """Position of the first line of an attempt's log that tells of an error, None without any.

        Raises:
            NotFound: There is no such build or attempt, or the storage lost the log.
        """
        return self._read(build_id, attempt or None, lambda log: log.extent()[1])[1]

    def last(self, build_id: str, attempt: int) -> int:
        """Position of the last line of an attempt's log, 0 without any; cheap enough to ask again and again."""
        with self._sessions.begin() as session:
            store = LogStore(session)
            last = store.last(build_id, attempt)
            away = store.put_away(build_id, attempt)
        return max(last, away.lines if away else 0)

    def matches(
        self, build_id: str, text: str, *, attempt: int | None = None, summary: bool = False
    ) -> LogMatches:
        """Where a text stands in what is read of an attempt's log, in any letters' case, at most `MAX_MATCHES` times.

        Args:
            build_id: The build.
            text: What is looked for, as it is.
            attempt: The attempt's number; None for the latest.
            summary: Leave the compiler's noise out.

        Raises:
            InvalidInput: The text is too long.
            NotFound: There is no such build or attempt, or the storage lost the log.
        """
        if len(text) > MAX_SOUGHT:
            raise InvalidInput(
                f"A text of {len(text)} characters is not looked for",
                where="q",
                hint=f"{MAX_SOUGHT} are the most.",
            )
        if text != text.translate(UNSEEN):  # no line shows such characters
            return LogMatches(())
        return self._read(build_id, attempt, lambda log: _matches(log, text, summary))[1]

    def _read(self, build_id: str, attempt: int | None, read: Callable[[_Log], T]) -> tuple[int, T]:
        """Reads a log from where it lies; one that is put away meanwhile is read from there."""
        with self._sessions.begin() as session:
            store = LogStore(session)
            number = attempt_number(store, build_id, attempt)
            found = read(_Rows(store, build_id, number))
            away = store.put_away(build_id, number)
        return number, read(_Blob(self._put_away, away.digest, away.lines)) if away else found


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
        """Reads backwards in steps that a log has few of, for a compiler may fill most of it with noise."""
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


def _part(log: _Log, place: LogPlace, summary: bool) -> LogWindow:
    last, error = log.extent()
    before: list[LogLine] = []
    behind: list[LogLine] = []
    most, characters = WINDOW_LINES, WINDOW_CHARACTERS
    if place.at is not None:
        most, characters = most // 2, characters // 2
        before = log.before(place.at, most + 1, summary=summary)
        behind = log.after(place.at - 1, most + 1, summary=summary)
    elif place.after is not None:
        behind = log.after(place.after, most + 1, summary=summary)
    else:
        end = last + 1 if place.before is None else place.before
        before = log.before(end, most + 1, summary=summary)
    first, second = _fitting(before[::-1], most, characters)[::-1], _fitting(behind, most, characters)
    return LogWindow(
        attempt=0,
        lines=(*first, *second),
        last=max([last, *(line.seq for line in second[-1:])]),  # it may have grown meanwhile
        error=error,
        earlier=len(first) < len(before) or bool(place.after),
        later=len(second) < len(behind) or (place.before is not None and place.before <= last),
    )


def _fitting(lines: list[LogLine], most: int, characters: int) -> list[LogLine]:
    """The first of some lines, as many as a part of a window may have; one at least."""
    sizes = accumulate(len(line.text) + _LINE_CHARACTERS for line in lines[:most])
    return lines[: max(1, sum(1 for _ in takewhile(lambda size: size <= characters, sizes)))]


def _matches(log: _Log, text: str, summary: bool) -> LogMatches:
    pattern, noise = sought(text), 0
    places: list[int] = []
    for line in log.holding(text):
        if not pattern.search(plain(line.text)):
            continue
        if summary and line.level == NOISE:
            noise += 1
        elif len(places) == MAX_MATCHES:
            return LogMatches(tuple(places), noise, more=True)
        else:
            places.append(line.seq)
    return LogMatches(tuple(places), noise)
