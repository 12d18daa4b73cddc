"""A model's versions as rows: aliases, a dot for each target, the speed, and how it compares with production."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.builds import BuildState, Readiness
from pt2hub.domain.performance.measurements import MeasurementState
from pt2hub.rendering.quantities import format_count
from pt2hub.rendering.sheets import measurement_state
from pt2hub.rendering.states import format_state
from pt2hub.rendering.targets import short_target
from pt2hub.server.pages.promotion.speed_texts import SpeedText, describe_speed
from pt2hub.wire.responses import VersionSummary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.server.views.version_speeds import VersionSpeeds

MAX_COLUMNS = 8
"""Targets with a dot of their own in each row."""
_STATES = {
    Readiness.PENDING: "building",
    Readiness.PARTIAL: "partly ready",
    Readiness.FAILED: "failed",
    Readiness.CANCELLED: "cancelled",
}
_WORST = (BuildState.FAILED, BuildState.CANCELLED, BuildState.RUNNING, BuildState.QUEUED)


@dataclass(frozen=True, slots=True)
class TargetHead:
    """The head of a target's column.

    Attributes:
        device: The first part of its short name: `H100`.
        release: The rest of it: `torch 2.13`.
    """

    name: str
    device: str
    release: str


@dataclass(frozen=True, slots=True)
class TargetDot:
    """The state of a version's build for a target.

    Attributes:
        state: The build's state; `none` where the version has no such target.
        label: The same in words.
        target: The target's name; None for the dot of all others.
        count: Number of the others; 0 for a single target.
    """

    state: str
    label: str
    target: str | None = None
    count: int = 0


@dataclass(frozen=True, slots=True)
class VersionRow:
    """A line of the list of versions.

    Attributes:
        state: What keeps it from being ready, in words; empty for a ready version.
        missing: Why it has no speed.
    """

    version: VersionSummary
    state: str
    dots: tuple[TargetDot, ...]
    speed: SpeedText
    missing: str


def pick_targets(versions: Sequence[VersionSummary]) -> list[str]:
    """Return all targets of versions, those of the first version first."""
    return list(dict.fromkeys(target for version in versions for target in version.targets))


def compose_heads(targets: Sequence[str]) -> list[TargetHead]:
    """Return the heads of the targets that have a column."""
    parts = ((name, short_target(name, targets).partition(" · ")) for name in targets[:MAX_COLUMNS])
    return [TargetHead(name, device, release) for name, (device, _, release) in parts]


def compose_rows(
    versions: Sequence[VersionSummary],
    targets: Sequence[str],
    speeds: VersionSpeeds | None,
    production: int | None,
) -> list[VersionRow]:
    """Return a row for each version."""
    return [
        VersionRow(
            version,
            _state(version),
            _dots(version, targets),
            describe_speed(speeds, version.number, production),
            _missing(version, speeds),
        )
        for version in versions
    ]


def _state(version: VersionSummary) -> str:
    state = _STATES.get(Readiness(version.readiness), "")
    found = ("yanked" if version.yanked else "", "damaged" if version.damaged else "", state)
    return ", ".join(filter(None, found))


def _dots(version: VersionSummary, targets: Sequence[str]) -> tuple[TargetDot, ...]:
    dots = [_dot(version, target, targets) for target in targets[:MAX_COLUMNS]]
    others = [state for target in targets[MAX_COLUMNS:] if (state := version.targets.get(target))]
    return (*dots, *([_summary(others)] if others else []))


def _dot(version: VersionSummary, target: str, among: Sequence[str]) -> TargetDot:
    state, name = version.targets.get(target, "none"), short_target(target, among)
    if state == "none":
        return TargetDot(state, f"{name}: not a target of version {version.number}", target)
    unmeasured = version.measurements.get(target, "measured")
    note = "" if unmeasured == "measured" else f", {measurement_state(unmeasured)}"
    return TargetDot(state, f"{name}: {format_state(state)}{note}", target)


def _summary(states: Sequence[str]) -> TargetDot:
    counts = Counter(states)
    worst = next((state for state in _WORST if counts[state]), BuildState.SUCCEEDED)
    parts = (f"{count} {format_state(state)}" for state, count in sorted(counts.items()))
    label = f"{format_count(len(states), 'more target')}: {', '.join(parts)}"
    return TargetDot(worst, label, count=len(states))


def _missing(version: VersionSummary, speeds: VersionSpeeds | None) -> str:
    if speeds is None:  # nothing is measured: any artifact says where that stands
        waiting = [state for state in version.measurements.values() if state != MeasurementState.MEASURED]
        return measurement_state(waiting[0]) if waiting else ""
    if version.number in speeds.values:
        return ""
    if version.targets.get(speeds.target) != BuildState.SUCCEEDED:
        return "-"
    return measurement_state(version.measurements.get(speeds.target, MeasurementState.NOT_MEASURED))
