"""Profiles of calls as text: what the GPU's time was spent on, and why it was idle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.renderable import Sheet
from pt2hub.rendering.kernels import format_lines
from pt2hub.rendering.quantities import format_count, format_share, quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.domain.performance.profiles import Profile
    from pt2hub.wire.profiles import ProfileRowView, ProfileView

GAPS = {
    "launch_us": "gaps, launch-bound: the host launched the next kernel too late",
    "sync_us": "gaps, synchronisation: a synchronising call held the host up before the launch",
    "device_us": "gaps on the device: a dependency between streams, or scheduling",
    "unknown_us": "gaps of unknown cause: the launch is not in the trace",
}
"""Labels of the causes of gaps."""
_SHORT = {
    "launch_us": "launch-bound",
    "sync_us": "synchronisation",
    "device_us": "on the device",
    "unknown_us": "unknown",
}
_SHEET_ROWS = 20


def whole_call(profile: Profile) -> tuple[tuple[str, float], ...]:
    """Return the parts of a call in microseconds, with and without the profiler."""
    return tuple((label, time) for label, time in _parts(profile) if time is not None)


def compare_whole_calls(
    own: Profile, other: Profile | None
) -> tuple[tuple[str, float | None, float | None], ...]:
    """Return the parts of an artifact's call and of torch.compile's, in microseconds."""
    mine = dict(whole_call(own))
    theirs = dict(whole_call(other)) if other else {}
    labels = dict.fromkeys(label for profile in (own, other) if profile for label, _ in _parts(profile))
    return tuple(
        (label, mine.get(label), theirs.get(label)) for label in labels if label in mine or label in theirs
    )


def gap_causes(profile: Profile) -> str:
    """Return the gaps of a call by cause, on one line; empty if they are not known."""
    if profile.gaps is None:
        return ""
    times = {label: getattr(profile.gaps, name) for name, label in _SHORT.items()}
    return ", ".join(f"{label} {quantity(time, 'us')}" for label, time in times.items() if time) or "none"


def batches_differ(own: Profile, other: Profile | None) -> bool:
    """Return whether two profiles are of calls with different batch sizes, so that their times cannot be compared."""
    return other is not None and own.batch != other.batch


def profile(view: ProfileView) -> Sheet:
    """Return the rows that take longest, and the parts of the whole call."""
    rows = tuple(
        (row.name, *_times(row, "artifact"), *(_times(row, "torch_compile") if view.torch_compile else ()))
        for row in view.rows[:_SHEET_ROWS]
    )
    parts = [
        f"{label}: {_compared(mine, theirs)}"
        for label, mine, theirs in compare_whole_calls(view.artifact, view.torch_compile)
    ]
    title = (
        f"{view.model}@{view.number} for {view.target}: {format_count(view.artifact.calls, 'traced call')}"
    )
    return Sheet(title, rows, tuple(parts))


def origin(row: ProfileRowView) -> list[str]:
    """Return what a row's kernel computes, and where its source is; the operator that launches it, if nothing is known."""
    grouped = format_lines([(item.line, item.operations) for item in row.lines])
    lines = [f"{line} {operations}".strip() for line, operations in grouped]
    operator = row.artifact.operator if row.artifact else None
    lines += [f"launched by {operator}"] if operator and not lines else []
    return [*lines, *([f"{row.source.file}:{row.source.line}"] if row.source else [])]


def _times(row: ProfileRowView, implementation: str) -> tuple[str, str]:
    found = getattr(row, implementation)
    return (format_share(found.share, decimals=1), quantity(found.mean_us, "us")) if found else ("-", "-")


def _compared(mine: float | None, theirs: float | None) -> str:
    own = "-" if mine is None else quantity(mine, "us")
    return own if theirs is None else f"{own}, torch.compile {quantity(theirs, 'us')}"


def _parts(profile: Profile) -> Iterator[tuple[str, float | None]]:
    """Yield the parts of a call, those that a profile lacks as None."""
    on_device = profile.device_us is not None
    yield "GPU busy with kernels and copies", profile.device_us
    for name, label in GAPS.items():
        time = getattr(profile.gaps, name) if profile.gaps else None
        yield label, time if time or name in ("launch_us", "sync_us") else None
    unexplained = profile.gap_us if profile.gaps is None else None
    yield "GPU idle between kernels (an earlier pt2hub recorded no causes)", unexplained
    edges = "before the first kernel and after the last" if profile.gap_us is not None else "GPU idle"
    yield edges, profile.rest_us if on_device else None
    yield "call under the profiler", profile.call_us
    yield "call without the profiler", profile.plain_us
    yield "profiler overhead", profile.profiler_us
    yield "GPU idle in a call without the profiler", profile.idle_us
