"""Differences between two verification reports: errors against the references, and tolerances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pt2hub.domain.verification_reports import VerificationReport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub.domain.verification_reports import Comparison

MAX_ERRORS = 20


@dataclass(frozen=True, slots=True)
class NumericsSummary:
    """The result of an artifact's verification.

    Attributes:
        result: `passed` or `no_power`; empty if unknown.
        relative_error: The largest error relative to the signal, or None.
        tolerance: The largest accepted error relative to the signal, or None.
        comparisons: Number of compared outputs.
        perturbed: Number of comparisons with perturbed weights.
    """

    result: str
    relative_error: float | None
    tolerance: float | None
    comparisons: int
    perturbed: int


@dataclass(frozen=True, slots=True)
class ErrorDifference:
    """The error of one compared output in both artifacts; None where an artifact has no such comparison.

    Attributes:
        what: The output and the inputs, as text.
        before: Largest error of the first artifact.
        before_allowed: Largest accepted error of the first artifact.
        after: Largest error of the second artifact.
        after_allowed: Largest accepted error of the second artifact.
    """

    what: str
    before: float | None = None
    before_allowed: float | None = None
    after: float | None = None
    after_allowed: float | None = None


@dataclass(frozen=True, slots=True)
class NumericsDifferences:
    """Verification of two artifacts, side by side.

    Attributes:
        before: Summary of the first artifact; None without a report.
        after: Summary of the second artifact; None without a report.
        errors: Errors by output, those closest to their limit first.
        left_out: Number of further errors.
        missing: Why errors cannot be compared; empty if they can.
    """

    before: NumericsSummary | None
    after: NumericsSummary | None
    errors: tuple[ErrorDifference, ...] = ()
    left_out: int = 0
    missing: str = ""


def compare_numerics(before: Mapping[str, Any], after: Mapping[str, Any]) -> NumericsDifferences:
    """Compare two verification reports, which any release of pt2hub may have written."""
    one, other = VerificationReport.of(before), VerificationReport.of(after)
    was, now = ({item.what: item for item in report.comparisons} for report in (one, other))
    names = sorted({**was, **now}, key=lambda name: -max(_share(was.get(name)), _share(now.get(name))))
    errors = tuple(_errors(name, was.get(name), now.get(name)) for name in names)
    sides = _summarise(before, one), _summarise(after, other)
    lacking = [side for side, known in zip(("first", "second"), (was, now), strict=True) if not known]
    missing = ""
    if lacking:
        which = f"the {lacking[0]} artifact" if len(lacking) == 1 else "either artifact"
        missing = f"No compared outputs are recorded in the verification report of {which}."
    return NumericsDifferences(
        *sides, errors[:MAX_ERRORS], left_out=max(0, len(errors) - MAX_ERRORS), missing=missing
    )


def _summarise(document: Mapping[str, Any], report: VerificationReport) -> NumericsSummary | None:
    if not document:
        return None
    return NumericsSummary(
        report.result, report.relative_error, report.tolerance, report.count, report.perturbed
    )


def _errors(what: str, before: Comparison | None, after: Comparison | None) -> ErrorDifference:
    return ErrorDifference(
        what,
        before.error if before else None,
        before.allowed if before else None,
        after.error if after else None,
        after.allowed if after else None,
    )


def _share(item: Comparison | None) -> float:
    return item.share if item else 0.0
