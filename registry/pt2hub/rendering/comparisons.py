"""Rendering of comparisons and flagged changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.names import team_of
from pt2hub.domain.performance.metrics import OF_JOBS
from pt2hub.domain.targets import parse_target
from pt2hub.errors import UnknownTarget
from pt2hub.renderable import Sheet
from pt2hub.rendering.changed_kernels import explain_change
from pt2hub.rendering.changes import between, format_change
from pt2hub.rendering.quantities import quantity
from pt2hub.rendering.reasons import HOW, NOTHING, because
from pt2hub.rendering.states import format_state

if TYPE_CHECKING:
    from pt2hub.wire.performance import ComparisonView, EventView, MetricComparison, SideView

_UNKNOWN = "unknown"
_MAX_SPREAD = 10
"""Upper end divided by lower end of an interval that is worth showing."""
_MENDED = frozenset(("not_measured", "too_noisy", "too_few", "environment_differs"))
"""Reasons for an inconclusive outcome that more measurements can resolve."""
BETTER = "For a better comparison"
"""Before commands that measure again."""
NO_KERNELS = "No kernel changed: both use the same one for every timed operation."
NOTHING_TIMED = (
    "Nothing was timed: artifacts of the no-op toolchain have no code, and their times are made up."
)
TWO_FIGURES = (
    "A change may have two ratios: side by side compares times of one run, a change of level compares the medians before and "
    "after, and points are values of the history, measured at different times."
)
"""Shown once if a change has two ratios."""


def comparison(view: ComparisonView) -> Sheet:
    """Return a comparison: a row for each metric, remarks, and commands that would improve it."""
    rows = tuple(comparison_row(item) for item in view.metrics)
    return Sheet(f"{_name_side(view.after)} against {_name_side(view.before)}", rows, notes(view))


def event(view: EventView) -> Sheet:
    """Return a flagged change."""
    what = f"{metric(view.metric, view.batch)} {view.outcome}"
    how_much = change(view.ratio, view.low, view.high, (view.metric, view.unit))
    row = (view.target, how_much, f"since {view.before}", found_as(view, view.points), view.at)
    return Sheet(f"{view.model}@{view.number} {what}", (row,))


def comparison_row(item: MetricComparison) -> tuple[str, str, str, str, str, str]:
    """Return a metric's row: its name, both values, the change, the outcome and its explanation."""
    before, after = (
        NOTHING if value is None else quantity(value, item.unit) for value in (item.before, item.after)
    )
    return (
        metric(item.metric, item.batch),
        before,
        after,
        change(item.ratio, item.low, item.high, (item.metric, item.unit)),
        format_state(item.outcome),
        (item.explanation or because(item)) + (" (reported)" if item.reported else ""),
    )


def notes(view: ComparisonView) -> tuple[str, ...]:
    """Return the remarks below the rows, ending with commands for a better comparison."""
    commands = repeat_commands(view)
    better = (f"{BETTER}: {'; '.join(commands)}",) if commands else ()
    unexplained = explain_change(view)
    return (*((unexplained,) if unexplained else ()), *code_lines(view), *remarks(view), *better)


def _exists(target: str) -> bool:
    """Return whether a target is that of a real toolchain; one of a newer pt2hub counts as real."""
    try:
        return parse_target(target).exists
    except UnknownTarget:
        return True


def remarks(view: ComparisonView) -> tuple[str, ...]:
    """Return remarks on a comparison."""
    before, after = view.before, view.after
    differs = "; ".join(
        f"{name}: {_known_text(values[0])}, then {_known_text(values[1])}"
        for name, values in view.differs.items()
    )
    said = (
        NOTHING_TIMED if not (_exists(before.target) and _exists(after.target)) else "",
        f"Two models: {before.model} and {after.model}." if before.model != after.model else "",
        f"Two targets: {before.target} and {after.target}." if view.across else "",
        f"The environments differ in {differs}." if differs else "",
    )
    return tuple(line for line in said if line)


def repeat_commands(view: ComparisonView) -> tuple[str, ...]:
    """Return commands that measure what is missing, too noisy or from another environment; may be empty.

    If one run can measure both sides, it does, in one environment.
    """
    mended = [item for item in view.metrics if item.metric in OF_JOBS and item.reason in _MENDED]
    if not mended:
        return ()
    if not view.across and team_of(view.before.model) == team_of(view.after.model):
        return (f"{_measure(view.after)} --baseline {_reference(view.before)}",)
    apart = any(item.reason == "environment_differs" for item in mended)
    lacking = (
        (view.before, any(item.before is None for item in mended)),
        (view.after, any(item.after is None for item in mended)),
    )
    sides = [side for side, lacks in lacking if lacks or apart] or [view.after]
    return tuple(_measure(side) for side in sides)


def code_lines(view: ComparisonView) -> tuple[str, ...]:
    """Return whether both run the same code, and why kernels cannot be compared or that none changed, as text."""
    if view.code is None:  # an older server
        return ()
    unchanged = "" if view.code.same or view.autotune else NO_KERNELS
    return tuple(line for line in (view.code.message, view.code.tuning or unchanged) if line)


def metric(name: str, batch: int | None) -> str:
    """Return a metric with its batch size."""
    return f"{name} batch {batch}" if batch else name


def change(
    ratio: float | None,
    low: float | None = None,
    high: float | None = None,
    what: tuple[str, str] = ("", "1"),
) -> str:
    """Return a ratio as a change, with its interval if known: `12.3 % slower (9.8 to 14.9 %)`.

    An interval so wide that it says nothing is left out, and the change with it where it may as well be none.

    Args:
        ratio: After over before, None where there is none.
        low: Lower end of its interval, or None.
        high: Its upper end, or None.
    """
    if ratio is None:
        return NOTHING
    if low is None or high is None or low == high:
        return format_change(ratio, *what)
    if high > _MAX_SPREAD * low:
        return _UNKNOWN if low <= 1 <= high else format_change(ratio, *what)
    return f"{format_change(ratio, *what)} ({between(low, high, *what)})"


def explain_method(method: str | None) -> str:
    """Describe a method of comparison briefly."""
    return HOW.get(method or "", method or NOTHING)


def found_as(item: EventView, points: float | None) -> str:
    """Return how a flagged change was found, with the change between the history's points if that differs.

    Args:
        points: The version's point over that of the one before, None without such a ratio.
    """
    how = "change of level" if item.kind == "change_point" else explain_method(item.method)
    what = (item.metric, item.unit)
    told, own = (format_change(ratio, *what) if ratio else "" for ratio in (points, item.ratio))
    return f"{how}; points {told}" if told and told != own else how


def _measure(side: SideView) -> str:
    return f"pt2hub measure {_reference(side)} --target {side.target}"


def _reference(side: SideView) -> str:
    return f"{side.model}@{side.number}"


def _name_side(side: SideView) -> str:
    return f"{side.model}@{side.number} for {side.target}"


def _known_text(value: object) -> str:
    return "unknown" if value is None else str(value)
