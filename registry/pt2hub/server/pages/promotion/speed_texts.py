"""Texts on the speed of a version beside that of another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.rendering.changes import format_change
from pt2hub.rendering.quantities import quantity

if TYPE_CHECKING:
    from pt2hub.server.views.version_speeds import VersionSpeeds

_WORDS = {"same": "within the limit", "inconclusive": "inconclusive"}


@dataclass(frozen=True, slots=True)
class SpeedText:
    """The speed of a version.

    Attributes:
        value: Its latency, with the unit; empty where it is not measured.
        outcome: `better`, `worse`, `same` or `inconclusive` beside the other version; empty where they are not compared.
        change: The change in words: `3.1 % faster`, `within the limit`, or `inconclusive`.
        exact: The change as it is, for hovering.
    """

    value: str = ""
    outcome: str = ""
    change: str = ""
    exact: str = ""


def describe_speed(speeds: VersionSpeeds | None, number: int, before: int | None) -> SpeedText:
    """Describe the latency of a version, and how it compares with that of another one."""
    if speeds is None or number not in speeds.values:
        return SpeedText()
    value = quantity(speeds.values[number], speeds.unit)
    if before is None or before == number:
        return SpeedText(value)
    outcome, ratio = speeds.outcome(number, before), speeds.ratio(number, before)
    if not outcome or ratio is None:
        return SpeedText(value)
    exact = format_change(ratio, speeds.metric, speeds.unit)
    change = _WORDS.get(outcome, exact)
    return SpeedText(value, outcome, change, f"{exact} than version {before}")
