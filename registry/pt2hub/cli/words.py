"""Values in the words of people: times, sizes, durations. Programs get them whole with `--json`."""

from __future__ import annotations

from datetime import UTC, datetime

NOTHING = "-"
"""Stands where there is no value, so that every column of a line has a word."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024
_MINUTE = 60
_HOUR = 3600


def when(iso: str | None) -> str:
    """A time by this machine's clock and zone, to the minute."""
    moment = _moment(iso)
    return moment.astimezone().strftime("%Y-%m-%d %H:%M") if moment else iso or NOTHING


def took(begin: str | None, end: str | None) -> str:
    """How long something took, in short."""
    first, last = _moment(begin), _moment(end)
    if first is None or last is None:
        return NOTHING
    return duration((last - first).total_seconds())


def duration(seconds: float) -> str:
    """A number of seconds with the units that fit."""
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), _MINUTE)
    return f"{minutes} min {rest} s" if seconds < _HOUR else f"{minutes // _MINUTE} h {minutes % _MINUTE} min"


def size(count: int) -> str:
    """A number of bytes with its unit."""
    value, unit = float(count), 0
    while value >= _STEP and unit < len(_UNITS) - 1:
        value, unit = value / _STEP, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit else f"{count} B"


def one_line(text: str) -> str:
    """A text from elsewhere without line ends and control characters, which could repaint a terminal."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _moment(iso: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(iso or "")
    except ValueError:  # none, or of a server that writes times in another way
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
