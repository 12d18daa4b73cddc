"""Windows of logs on pages: lines, hidden lines and navigation."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from flask import request, url_for
from markupsafe import Markup
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pt2hub.domain.builds import BuildState
from pt2hub.domain.terminal import search_pattern
from pt2hub.errors import InvalidInput, UsageError
from pt2hub.server.api.context import container, wrong_fields
from pt2hub.server.pages.builds.terminal_colors import as_html
from pt2hub.server.views.logs import LogMatches, LogPosition, LogWindow

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

    from pt2hub.domain.builds import LogLine
    from pt2hub.wire.responses import BuildView

_Position = Annotated[int | None, Field(ge=0, lt=2**31)]
_MAX_ELAPSED_S = 1e7
"""Largest plausible time of a line after its attempt's start; workers are not trusted."""


class LogQuery(BaseModel):
    """Query parameters of a log window."""

    model_config = ConfigDict(frozen=True)

    attempt: Annotated[int | None, Field(ge=1, lt=2**31)] = None
    at: _Position = None
    after: _Position = None
    before: _Position = None
    q: str = ""
    whole: bool = False

    @classmethod
    def read(cls) -> LogQuery:
        """Read the current request's query.

        Raises:
            InvalidInput: A parameter is invalid.
        """
        given = {name: value for name, value in request.args.items() if name in cls.model_fields and value}
        try:
            return cls.model_validate(given)
        except ValidationError as exc:
            raise InvalidInput(
                "Invalid log position",
                where="query",
                hint="Remove the parameters to see the end of the log.",
                details=wrong_fields(exc),
            ) from exc

    @property
    def position(self) -> LogPosition:
        """The position of the window, without the search."""
        return LogPosition(self.at, self.after, self.before)


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a log window.

    Attributes:
        clock: Time since the attempt started, empty if unknown.
        moment: The time in UTC.
        level: As in `LogLine`.
        hidden: Number of hidden lines of compiler output before this one.
    """

    seq: int
    clock: str
    moment: str
    step: str
    level: str
    html: Markup
    hidden: int = 0


@dataclass(frozen=True, slots=True)
class Panel:
    """A log window with its navigation.

    Attributes:
        hidden: Number of hidden lines of compiler output after the last one.
        matches: Matches of the search, None without a search.
        removed_after_days: Age at which the log was removed, or None.
    """

    build: str
    query: LogQuery
    window: LogWindow
    rows: tuple[Row, ...]
    open: bool
    hidden: int = 0
    matches: LogMatches | None = None
    problem: UsageError | None = None
    removed_after_days: int | None = None

    def address(self, *, endpoint: str = "pages.build", **changes: Any) -> str:
        """Return this page's URL with other parameters; the position is kept only if given."""
        kept = {
            "attempt": self.query.attempt,
            "whole": 1 if self.query.whole else None,
            "q": self.query.q or None,
        }
        return url_for(endpoint, build=self.build, **(kept | changes))

    @property
    def base(self) -> str:
        """The URL of a line up to its number, computed once for all lines."""
        address = self.address()
        return f"{address}{'&' if '?' in address else '?'}at="

    def line(self, seq: int) -> str:
        """Return the URL of a line."""
        return f"{self.base}{seq}#L{seq}"

    @property
    def number(self) -> int:
        """The number of the current match, from 1; 0 if the current line does not match."""
        positions = self.matches.positions if self.matches else ()
        index = bisect_left(positions, self.query.at or 0)
        return index + 1 if index < len(positions) and positions[index] == self.query.at else 0

    @property
    def previous(self) -> int | None:
        """The match before the current line."""
        positions = self.matches.positions if self.matches else ()
        index = bisect_left(positions, self.query.at or 0)
        return positions[index - 1] if index else None

    @property
    def next(self) -> int | None:
        """The match after the current line."""
        positions = self.matches.positions if self.matches else ()
        index = bisect_right(positions, self.query.at or 0)
        return positions[index] if index < len(positions) else None

    @property
    def follows(self) -> bool:
        """Whether new lines are appended to this window."""
        return (
            self.open and not self.window.later and self.query.position == LogPosition() and not self.query.q
        )


def panel(view: BuildView, query: LogQuery) -> Panel:
    """Return the log window for a query.

    Raises:
        NotFound: The attempt does not exist, or the log is missing from storage.
    """
    matches, problem = _matches(view.id, query)
    if matches and matches.positions and query.position == LogPosition():
        query = query.model_copy(update={"at": matches.positions[0]})
    services = container()
    window = services.log_windows.window(
        view.id, attempt=query.attempt, position=query.position, summary=not query.whole
    )
    pattern = search_pattern(query.q) if query.q and not problem else None
    rows = tuple(_rows(view, window, query, pattern))
    last = rows[-1].seq if rows else query.after or 0
    return Panel(
        build=view.id,
        query=query,
        window=window,
        rows=rows,
        open=window.attempt == view.attempt and not is_finished(view),
        hidden=0 if window.later or query.whole else max(0, window.last - last),
        matches=matches,
        problem=problem,
        removed_after_days=next(
            (item.log_removed_after_days for item in view.attempts if item.number == window.attempt), None
        ),
    )


def is_finished(view: BuildView) -> bool:
    """Return whether neither the build nor its log can change any more."""
    return BuildState(view.state).final and container().logs.complete(view.id, view.attempt)


def _matches(build: str, query: LogQuery) -> tuple[LogMatches | None, UsageError | None]:
    if not query.q:
        return None, None
    try:
        found = container().log_windows.matches(
            build, query.q, attempt=query.attempt, summary=not query.whole
        )
    except InvalidInput as error:
        return None, error
    return found, None


def _rows(
    view: BuildView, window: LogWindow, query: LogQuery, pattern: re.Pattern[str] | None
) -> Iterator[Row]:
    started = _start_time(view, window.attempt)
    before = query.after if query.after is not None else None if window.earlier else 0
    for line in window.lines:
        hidden = 0 if before is None else line.seq - before - 1
        yield _row(line, started, as_html(line.text, pattern), hidden)
        before = line.seq


def _row(line: LogLine, started: float | None, html: Markup, hidden: int) -> Row:
    known = started is not None and math.isfinite(line.at) and abs(line.at - started) < _MAX_ELAPSED_S
    clock = _clock(max(0.0, line.at - started)) if known and started is not None else ""
    moment = f"{datetime.fromtimestamp(line.at, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC" if known else ""
    return Row(line.seq, clock, moment, line.step, line.level, html, hidden)


def _start_time(view: BuildView, attempt: int) -> float | None:
    found = next((item for item in view.attempts if item.number == attempt), None)
    return datetime.fromisoformat(found.started_at).timestamp() if found else None


def _clock(seconds: float) -> str:
    """Format a duration as a clock: `0:07.3`, `1:02:07.3`."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02}:{rest:04.1f}" if hours else f"{minutes}:{rest:04.1f}"
