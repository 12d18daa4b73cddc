"""View models of log windows."""

from __future__ import annotations

from dataclasses import dataclass

from pt2hub.domain.builds import LogLine


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The requested window of a log; by default its end.

    Attributes:
        at: The lines around this position.
        after: Those behind it.
        before: Those in front of it.
    """

    at: int | None = None
    after: int | None = None
    before: int | None = None


@dataclass(frozen=True, slots=True)
class LogWindow:
    """A window of an attempt's log.

    Attributes:
        attempt: The attempt's number, 0 where none has begun.
        lines: Some of its lines, in order; positions that are left out are those of the compiler's noise.
        last: Position of the last line that there is, 0 without any.
        error: Position of the first line that tells of an error, None without any.
        earlier: Whether there are further lines in front of these.
        later: Whether there are further ones behind them.
    """

    attempt: int
    lines: tuple[LogLine, ...]
    last: int
    error: int | None = None
    earlier: bool = False
    later: bool = False


@dataclass(frozen=True, slots=True)
class LogMatches:
    """Matches of a search in an attempt's log.

    Attributes:
        positions: Positions of matching lines, in order.
        hidden: Number of further matches in hidden noise lines.
        more: Whether there are further matches that were not counted.
    """

    positions: tuple[int, ...]
    hidden: int = 0
    more: bool = False
