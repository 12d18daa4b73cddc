"""Texts on the speed of a version beside that of another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.rendering.changes import SAME, format_change
from pt2hub.rendering.quantities import quantity
from pt2hub.rendering.reasons import percentage

if TYPE_CHECKING:
    from pt2hub.server.views.version_speeds import VersionSpeeds


@dataclass(frozen=True, slots=True)
class SpeedText:
    """The speed of a version.

    Attributes:
        value: Its latency, with the unit; empty where it is not measured.
        outcome: `better`, `worse`, `same` or `inconclusive` beside the other version; empty where they are not compared.
        change: The change in words: `3.1 % faster`, or `no change`.
        beside: The change and the other version: `3.1 % faster than version 3`.
        caveat: What it means, after a comma; empty where it counts. Two values do not tell a small change from noise.
        is_same_code: Whether both run the same code.
    """

    value: str = ""
    outcome: str = ""
    change: str = ""
    beside: str = ""
    caveat: str = ""
    is_same_code: bool = False

    @property
    def note(self) -> str:
        """The change and what it means, for hovering."""
        return self.beside + self.caveat


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
    change = format_change(ratio, speeds.metric, speeds.unit)
    beside = f"{change} {'from' if change == SAME else 'than'} version {before}"
    caveats = {"same": f", below the limit of {format_limit(speeds)}", "inconclusive": ", which may be noise"}
    if is_same_code := speeds.has_same_code(number, before):
        caveats["same"] = "; both run the same code"
    return SpeedText(value, outcome, change, beside, caveats.get(outcome, ""), is_same_code)


def format_limit(speeds: VersionSpeeds) -> str:
    """Return the least change that counts, such as `5 %`."""
    return percentage(math.expm1(speeds.least))
