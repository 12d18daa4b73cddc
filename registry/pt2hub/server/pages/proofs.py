"""The report of the publish gate, as people read it: whichever release of pt2hub wrote it, and whatever is missing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_WORST = 10
_MOST_DIGITS = 9
_POINTS = {"example": "example inputs", "smallest": "smallest sizes", "largest": "largest sizes"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """An output of the artifact beside that of the model.

    Attributes:
        what: Which output, where.
        error: By how much it is off.
        allowed: By how much it may be.
        signal: How far it moves when the inputs change.
    """

    what: str
    error: float
    allowed: float
    signal: float

    @property
    def share(self) -> float:
        """The error, of what is allowed."""
        return self.error / self.allowed if self.allowed else float(self.error > 0)


@dataclass(frozen=True, slots=True)
class Proof:
    """What the gate found.

    Attributes:
        verdict: `passed` or `no_power`; empty where the report does not say it.
        relative_error: The largest error, of the signal; None where nothing was compared.
        tolerance: What the spec allows of it.
        worst: The comparisons that came nearest to what is allowed.
        count: How many there were.
        perturbed: How many of them with perturbed weights.
        no_power: What the gate could not have seen fail.
        notes: What callers should know.
    """

    verdict: str
    relative_error: float | None
    tolerance: float | None
    worst: tuple[Comparison, ...]
    count: int
    perturbed: int
    no_power: tuple[str, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> Proof:
        """Reads a report."""
        rows = [item for item in _list(report, "comparisons") if isinstance(item, dict)]
        found = [item for row in rows if (item := _comparison(row))]
        return cls(
            verdict=str(report.get("verdict") or ("passed" if report.get("passed") is True else "")),
            relative_error=_number(report.get("relative_error")),
            tolerance=_number(report.get("tolerance")),
            worst=tuple(sorted(found, key=lambda item: -item.share)[:_WORST]),
            count=len(rows),
            perturbed=sum(bool(row.get("group")) for row in rows),
            no_power=tuple(map(str, _list(report, "no_power"))),
            notes=tuple(map(str, _list(report, "notes"))),
        )


def _comparison(row: Mapping[str, Any]) -> Comparison | None:
    error, allowed, signal = (_number(row.get(name)) for name in ("error", "allowed", "signal"))
    if error is None or allowed is None:
        return None
    return Comparison(_what(row), error, allowed, signal or 0.0)


def _what(row: Mapping[str, Any]) -> str:
    label, _, number = str(row.get("point", "")).partition(".")
    place = int(number) if number.isdecimal() and len(number) <= _MOST_DIGITS else 0
    point = _POINTS.get(label, label) + (f" {place + 1}" if place else "")
    under = f", perturbed {row['group']}" if row.get("group") else ""
    threads = f", {row['threads']} threads" if row.get("threads") else ""
    return f"output {row.get('output', 0)} at {point}{under}{threads}"


def _list(report: Mapping[str, Any], name: str) -> list[Any]:
    found = report.get(name)
    return found if isinstance(found, list) else []


def _number(value: object) -> float | None:
    """A finite number; what is stored of others is text, and a whole number may be beyond all floats."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None
