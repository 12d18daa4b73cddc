"""Verification reports, read leniently: any release of pt2hub may have written them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_WORST = 10
_MAX_DIGITS = 9
_POINTS = {"example": "example inputs", "smallest": "smallest sizes", "largest": "largest sizes"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of an output of the artifact with the reference output.

    Attributes:
        what: The output and the inputs, as text.
        allowed: The largest accepted error.
        signal: How far the output moves when the inputs change.
    """

    what: str
    error: float
    allowed: float
    signal: float

    @property
    def share(self) -> float:
        """The error relative to the largest accepted error."""
        return self.error / self.allowed if self.allowed else float(self.error > 0)


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """The result of verification.

    Attributes:
        result: `passed` or `no_power`; empty if unknown.
        relative_error: The largest error relative to the signal, None without comparisons.
        comparisons: The comparisons that have an error and a limit.
        worst: Those closest to the limit.
        count: Number of comparisons.
        perturbed: Number of comparisons with perturbed weights.
    """

    result: str
    relative_error: float | None
    tolerance: float | None
    comparisons: tuple[Comparison, ...]
    worst: tuple[Comparison, ...]
    count: int
    perturbed: int
    no_power: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def lack_of_power(self) -> str:
        """Why this verification could not have failed; empty if it passed and could have."""
        if self.result == "no_power" or self.no_power:
            return "its verification has no power"
        if self.result != "passed":
            return "its verification is unknown"
        return "" if self.comparisons else "its verification compared nothing"

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> VerificationReport:
        """Read a report."""
        rows = [item for item in _list(report, "comparisons") if isinstance(item, dict)]
        found = [item for row in rows if (item := _comparison(row))]
        return cls(
            result=str(report.get("result") or report.get("verdict") or ""),  # verdict: until 0.2
            relative_error=_number(report.get("relative_error")),
            tolerance=_number(report.get("tolerance")),
            comparisons=tuple(found),
            worst=tuple(sorted(found, key=lambda item: -item.share)[:_MAX_WORST]),
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
    index = int(number) if number.isdecimal() and len(number) <= _MAX_DIGITS else 0
    point = _POINTS.get(label, label) + (f" {index + 1}" if index else "")
    under = f", perturbed {row['group']}" if row.get("group") else ""
    threads = f", {row['threads']} threads" if row.get("threads") else ""
    return f"output {row.get('output', 0)} at {point}{under}{threads}"


def _list(report: Mapping[str, Any], name: str) -> list[Any]:
    found = report.get(name)
    return found if isinstance(found, list) else []


def _number(value: object) -> float | None:
    """Return a finite number, else None; an integer may be too large for a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None
