"""Figures with their units in the words of people: 250 µs, 10.4 ms, 44.7 MB, +3.2 %."""

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
    "B": ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
}
"""By unit, how many of it a larger or smaller one is, largest first."""
_BLOCKS = "▁▂▃▄▅▆▇█"
_LARGE = 1000
_SMALL = 1e-3
_HUGE = 1e9
_DIGITS = 4
_ALIKE = 0.1
"""Relative range that a sparkline spans at least: a few percent of noise must not look like cliffs."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The unit that figures are shown in.

    Attributes:
        factor: How many of the figures' own unit it is.
        unit: Its name, empty for a ratio.
        decimals: Digits after the point, equally many for all; None where each has its own.
    """

    factor: float
    unit: str
    decimals: int | None = None

    def text(self, value: float) -> str:
        """A figure with its unit."""
        shown, decimals = value / self.factor, self.decimals
        fits = decimals is not None and (shown == 0 or abs(shown) >= 10.0**-decimals)
        return f"{f'{shown:,.{decimals}f}' if fits else _number(shown)} {self.unit}".rstrip()


def scale_for(values: Iterable[float], unit: str) -> Scale:
    """The unit and the digits that fit the largest of figures, so that a column has one of each.

    Args:
        values: The figures.
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
    """Digits after the point of a column; None where its figures are too large or small for that."""
    if not _SMALL <= largest < _HUGE:
        return None
    return min(_DIGITS, max(0, _DIGITS - 1 - math.floor(math.log10(largest))))


def quantity(value: float, unit: str) -> str:
    """One figure with the unit that fits."""
    return Scale(*_step(abs(value), unit)).text(value)


def percent(ratio: float) -> str:
    """A ratio as a change: 1.032 is `+3.2 %`; far ones as `x 12`."""
    if not math.isfinite(ratio):
        return "-"
    change = (ratio - 1) * 100
    if abs(change) >= _LARGE:
        return f"x {_number(ratio)}"
    text = f"{change:+.1f} %"
    return "0.0 %" if text in ("+0.0 %", "-0.0 %") else text


def spelled(text: str, encoding: str | None) -> str:
    """A text as an output writes it that may not know the sign for microseconds.

    Args:
        text: The text.
        encoding: The output's encoding, None where it has none.
    """
    knows = (encoding or "").lower().replace("-", "").startswith("utf")
    return text if knows else text.replace(MICROSECONDS, "us")


def sparkline(values: Sequence[float]) -> str:
    """Figures as a line of blocks, the lowest and the highest of them at its ends."""
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
    """Four digits that count; thousands with commas, very small ones with an exponent."""
    size = abs(value)
    if size >= _LARGE:
        return f"{value:,.0f}" if size < _HUGE else f"{value:.3e}"
    if value == 0 or size >= _SMALL:
        decimals = 0 if value == 0 else max(0, _DIGITS - 1 - math.floor(math.log10(size)))
        text = f"{value:.{min(decimals, _DIGITS)}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.2e}"
