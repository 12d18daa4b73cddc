"""Formatting of numbers with units: 250 µs, 3 min 20 s, 44.7 MiB, +3.2 %, 2 builds.

The only renderer of durations, bytes, counts and ratios, for CLI, client and pages; `web/islands/durations.ts` has what the
pages' scripts need of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MICROSECONDS = "µs"
_STEPS = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, MICROSECONDS), (1e-9, "ns")),
    "ms": ((1e3, "s"), (1.0, "ms"), (1e-3, MICROSECONDS), (1e-6, "ns")),
    "us": ((1e6, "s"), (1e3, "ms"), (1.0, MICROSECONDS), (1e-3, "ns")),
    "B": ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")),
}
"""Scales of each unit with their factors, largest first."""
_DURATIONS = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
_AGES = ((86400 * 365, "y"), (86400 * 30, "mo"), (86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_MINUTE = 60
_FEW_SECONDS = 8
"""Estimates below this are not given as numbers."""
_FURTHEST = 1e300
_BLOCKS = "▁▂▃▄▅▆▇█"
_LARGE = 1000
_SMALL = 1e-3
_HUGE = 1e9
_DIGITS = 4
_ALIKE = 0.1
"""Relative range that a sparkline spans at least: a few percent of noise must not look like cliffs."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The unit in which values are shown.

    Attributes:
        factor: How many of the figures' own unit it is.
        unit: Its name, empty for a ratio.
        decimals: Digits after the point, equally many for all; None where each has its own.
    """

    factor: float
    unit: str
    decimals: int | None = None

    def text(self, value: float) -> str:
        """Return a value with its unit."""
        shown, decimals = value / self.factor, self.decimals
        fits = decimals is not None and (shown == 0 or abs(shown) >= 10.0**-decimals)
        return f"{f'{shown:,.{decimals}f}' if fits else _number(shown)} {self.unit}".rstrip()


def scale_for(values: Iterable[float], unit: str) -> Scale:
    """Return the scale and decimals that fit the largest value, so that a column uses one of each.

    Args:
        unit: Their unit; `1` for a ratio.
    """
    given = list(values)
    largest = max((abs(value) for value in given), default=0.0)
    factor, name = _step(largest, unit)
    whole = all(float(value / factor).is_integer() for value in given)
    return Scale(factor, name, 0 if whole else _decimals(largest / factor))


def _step(largest: float, unit: str) -> tuple[float, str]:
    if unit == "1" or not largest:
        return 1.0, {"1": "", "us": MICROSECONDS}.get(unit, unit)
    steps = _STEPS.get(unit, ((1.0, unit),))
    return next((step for step in steps if largest >= step[0]), steps[-1])


def _decimals(largest: float) -> int | None:
    """Return the number of decimals of a column; None if its values are too large or small for fixed decimals."""
    if not _SMALL <= largest < _HUGE:
        return None
    return min(_DIGITS, max(0, _DIGITS - 1 - math.floor(math.log10(largest))))


def quantity(value: float, unit: str) -> str:
    """Format a value in the unit that fits."""
    return Scale(*_step(abs(value), unit)).text(value)


def format_bytes(count: float) -> str:
    """Format a number of bytes: `44.7 MiB`. A hostile document may contain one larger than any float."""
    return quantity(max(-_FURTHEST, min(count, _FURTHEST)), "B")


def format_duration(seconds: float) -> str:
    """Format a duration: `250 ms`, `12.5 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    for size, unit, small, rest in _DURATIONS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit} {int(seconds % size // small)} {rest}"
    return (
        f"{seconds:.1f} s" if seconds >= 1 else quantity(round(seconds, 3 if seconds >= _SMALL else 6), "s")
    )


def format_elapsed(seconds: float) -> str:
    """Format a duration that counts up, in whole seconds: `29 s`, `3 min 20 s`."""
    whole = math.floor(max(0.0, seconds))
    return f"{whole} s" if whole < _MINUTE else format_duration(whole)


def format_remaining(seconds: float) -> str:
    """Format an estimate of what is left, as coarse as it is uncertain: `a few seconds`, `40 s`, `12 min`."""
    if seconds < _FEW_SECONDS:
        return "a few seconds"
    if seconds < 10 * _MINUTE:
        step = 5 if seconds < _MINUTE else 10
        return format_elapsed(step * math.floor(seconds / step + 0.5))
    minutes = math.floor(seconds / _MINUTE + 0.5)
    return f"{minutes} min" if minutes < _MINUTE else format_duration(minutes * _MINUTE)


def format_age(seconds: float) -> str:
    """Format a duration in its largest unit only: `42 s`, `3 h`."""
    passed = max(0.0, seconds)
    return next((f"{passed / size:.0f} {unit}" for size, unit in _AGES if passed >= size), "0 s")


def format_count(number: int, noun: str) -> str:
    """Format a count of things: `1 version`, `1,200 versions`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_bounded(number: int, most: int) -> str:
    """Format a count that stopped at a limit: `7`, `1,000+`."""
    return f"{number:,}{'+' if number >= most else ''}"


def format_share(share: float, *, digits: int = 3, decimals: int | None = None) -> str:
    """Format a share as a percentage: 0.125 is `12.5 %`.

    Args:
        digits: How many digits count, where decimals are not fixed.
        decimals: Digits after the point, for columns.
    """
    value = 100 * share
    if decimals is None:
        decimals = 0 if round(abs(value)) >= 10**digits else None
    return f"{value:,.{decimals}f} %" if decimals is not None else f"{value:.{digits}g} %"


def percent(ratio: float) -> str:
    """Return a ratio as a change: 1.032 is `+3.2 %`; large ones as `x 12`."""
    if not math.isfinite(ratio):
        return "-"
    change = (ratio - 1) * 100
    if abs(change) >= _LARGE:
        return f"x {_number(ratio)}"
    text = f"{change:+.1f} %"
    return "0.0 %" if text in ("+0.0 %", "-0.0 %") else text


def fit_encoding(text: str, encoding: str | None) -> str:
    """Replace the sign for microseconds if an encoding lacks it.

    Args:
        encoding: The output's encoding, None where it has none.
    """
    knows = (encoding or "").lower().replace("-", "").startswith("utf")
    return text if knows else text.replace(MICROSECONDS, "us")


def sparkline(values: Sequence[float]) -> str:
    """Return values as a line of blocks, between their minimum and maximum."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    span = max(high - low, _ALIKE * max(abs(low), abs(high))) or 1.0
    last = len(_BLOCKS) - 1
    return "".join(
        _BLOCKS[round((value - low) / span * last)] if math.isfinite(value) else " " for value in values
    )


def _number(value: float) -> str:
    """Format four significant digits; thousands with commas, very small numbers with an exponent."""
    size = abs(value)
    if size >= _LARGE:
        return f"{value:,.0f}" if size < _HUGE else f"{value:.3e}"
    if value == 0 or size >= _SMALL:
        decimals = 0 if value == 0 else max(0, _DIGITS - 1 - math.floor(math.log10(size)))
        text = f"{value:.{min(decimals, _DIGITS)}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.2e}"
