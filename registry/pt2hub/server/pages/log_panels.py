"""The part of a log that a page shows: which lines, what is left out between them, and where to go from there."""

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
from pt2hub.domain.terminal import sought
from pt2hub.errors import InvalidInput, UsageError
from pt2hub.server.api.context import container, wrong_fields
from pt2hub.server.pages.colours import as_html
from pt2hub.wire.logs import LogMatches, LogPlace, LogWindow

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

    from pt2hub.domain.builds import LogLine
    from pt2hub.wire.shapes import BuildView

_Position = Annotated[int | None, Field(ge=0, lt=2**31)]
_FAR = 1e7
"""Seconds behind an attempt's beginning at which no line was written; a worker may say anything."""


class LogQuery(BaseModel):
    """What an address says of a log.

    Attributes:
        attempt: Of this attempt; of the latest without it.
        at: The lines around this one.
        after: Those behind it.
        before: Those in front of it.
        q: What is looked for.
        whole: With the compiler's noise.
    """

    model_config = ConfigDict(frozen=True)

    attempt: Annotated[int | None, Field(ge=1, lt=2**31)] = None
    at: _Position = None
    after: _Position = None
    before: _Position = None
    q: str = ""
    whole: bool = False

    @classmethod
    def read(cls) -> LogQuery:
        """What the current request's address says.

        Raises:
            InvalidInput: A parameter has a wrong form.
        """
        given = {name: value for name, value in request.args.items() if name in cls.model_fields and value}
        try:
            return cls.model_validate(given)
        except ValidationError as exc:
            raise InvalidInput(
                "The address names no part of a log",
                where="address",
                hint="Leave the parameters out to see its end.",
                details=wrong_fields(exc),
            ) from exc

    @property
    def place(self) -> LogPlace:
        """The part that is meant; what is looked for does not count."""
        return LogPlace(self.at, self.after, self.before)


@dataclass(frozen=True, slots=True)
class Row:
    """A line as it is shown.

    Attributes:
        seq: Its position.
        clock: How long the attempt ran when it was written, empty where that is not known.
        moment: When that was.
        step: The step that wrote it.
        level: As of `LogLine`.
        html: What it says.
        hidden: How many lines of the compiler's noise are left out in front of it.
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
    """A part of a log, and where to go from there.

    Attributes:
        build: The build's id.
        query: What the address asked for.
        window: What was found.
        rows: Its lines.
        open: Whether the attempt may write further lines.
        hidden: How many lines of noise are left out behind the last.
        matches: Where the text that is looked for stands, None where nothing is.
        problem: Why it was not looked for.
    """

    build: str
    query: LogQuery
    window: LogWindow
    rows: tuple[Row, ...]
    open: bool
    hidden: int = 0
    matches: LogMatches | None = None
    problem: UsageError | None = None

    def address(self, *, endpoint: str = "pages.build", **changes: Any) -> str:  # noqa: ANN401  # parameters
        """This page with other parameters; the place in the log is kept only where it is given.

        Args:
            endpoint: Of which page.
            changes: Parameters.
        """
        kept = {
            "attempt": self.query.attempt,
            "whole": 1 if self.query.whole else None,
            "q": self.query.q or None,
        }
        return url_for(endpoint, build=self.build, **(kept | changes))

    @property
    def base(self) -> str:
        """What the address of a line begins with; its position follows. Made once for a thousand of them."""
        address = self.address()
        return f"{address}{'&' if '?' in address else '?'}at="

    def line(self, seq: int) -> str:
        """Where a line is shown, marked."""
        return f"{self.base}{seq}#L{seq}"

    @property
    def number(self) -> int:
        """The number of the match that is shown, from 1, 0 where another line is."""
        places = self.matches.places if self.matches else ()
        place = bisect_left(places, self.query.at or 0)
        return place + 1 if place < len(places) and places[place] == self.query.at else 0

    @property
    def previous(self) -> int | None:
        """The match before the line that is shown."""
        places = self.matches.places if self.matches else ()
        place = bisect_left(places, self.query.at or 0)
        return places[place - 1] if place else None

    @property
    def next(self) -> int | None:
        """The match behind it."""
        places = self.matches.places if self.matches else ()
        place = bisect_right(places, self.query.at or 0)
        return places[place] if place < len(places) else None

    @property
    def follows(self) -> bool:
        """Whether new lines belong below these."""
        return self.open and not self.window.later and self.query.place == LogPlace() and not self.query.q


def panel(view: BuildView, query: LogQuery) -> Panel:
    """The part of a build's log that an address asks for.

    Args:
        view: The build.
        query: What the address says.

    Raises:
        NotFound: The build has no such attempt, or the storage lost the log.
    """
    matches, problem = _matches(view.id, query)
    if matches and matches.places and query.place == LogPlace():
        query = query.model_copy(update={"at": matches.places[0]})
    services = container()
    window = services.log_windows.window(
        view.id, attempt=query.attempt, place=query.place, summary=not query.whole
    )
    pattern = sought(query.q) if query.q and not problem else None
    rows = tuple(_rows(view, window, query, pattern))
    last = rows[-1].seq if rows else query.after or 0
    return Panel(
        build=view.id,
        query=query,
        window=window,
        rows=rows,
        open=window.attempt == view.attempt and not is_over(view),
        hidden=0 if window.later or query.whole else max(0, window.last - last),
        matches=matches,
        problem=problem,
    )


def is_over(view: BuildView) -> bool:
    """Whether neither the build nor its log can change any more."""
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
    begun = _begun(view, window.attempt)
    before = query.after if query.after is not None else None if window.earlier else 0
    for line in window.lines:
        hidden = 0 if before is None else line.seq - before - 1
        yield _row(line, begun, as_html(line.text, pattern), hidden)
        before = line.seq


def _row(line: LogLine, begun: float | None, html: Markup, hidden: int) -> Row:
    known = begun is not None and math.isfinite(line.at) and abs(line.at - begun) < _FAR
    clock = _clock(max(0.0, line.at - begun)) if known and begun is not None else ""
    moment = f"{datetime.fromtimestamp(line.at, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC" if known else ""
    return Row(line.seq, clock, moment, line.step, line.level, html, hidden)


def _begun(view: BuildView, attempt: int) -> float | None:
    found = next((item for item in view.attempts if item.number == attempt), None)
    return datetime.fromisoformat(found.started_at).timestamp() if found else None


def _clock(seconds: float) -> str:
    """How long something ran: `0:07.3`, `1:02:07.3`."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02}:{rest:04.1f}" if hours else f"{minutes}:{rest:04.1f}"
