"""Sheets of comparisons and flagged changes, and their parts in the words of people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.autotuning import parameters_text
from pt2hub.domain.names import team_of
from pt2hub.domain.performance import OF_JOBS
from pt2hub.printed import Sheet
from pt2hub.rendering.moves import between, moved
from pt2hub.rendering.quantities import quantity
from pt2hub.rendering.reasons import HOW, NOTHING, because

if TYPE_CHECKING:
    from typing import Any

    from pt2hub.wire.performance import (
        AutotuneDifference,
        ComparisonView,
        EventView,
        MetricComparison,
        SideView,
    )

_UNKNOWN = "unknown"
_WIDEST = 10
"""Upper over lower end of an interval that is worth showing."""
_MENDED = frozenset(("not_measured", "too_noisy", "too_few", "environment_differs"))
"""Why there is no verdict that more figures can give."""
NO_KERNELS = "No kernel changed: for each operation that was timed both took the same."
TWO_FIGURES = (
    "Two figures for one change: side by side both were timed in one run, a change of level is that of the medians before "
    "and after, and points are those of the history, timed at different times."
)
"""Said once where `found_as` says two."""


def comparison(view: ComparisonView) -> Sheet:
    """A comparison: one row for each metric, what to know, and what gives a better answer."""
    rows = tuple(compared(item) for item in view.metrics)
    notes = (*code_lines(view), *remarks(view))
    return Sheet(f"{_named(view.after)} against {_named(view.before)}", rows, notes)


def event(view: EventView) -> Sheet:
    """A flagged change."""
    what = f"{metric(view.metric, view.batch)} {view.verdict}"
    how_much = change(view.ratio, view.low, view.high, (view.metric, view.unit))
    row = (view.target, how_much, f"since {view.before}", found_as(view, view.points), view.at)
    return Sheet(f"{view.model}@{view.number} {what}", (row,))


def compared(item: MetricComparison) -> tuple[str, str, str, str, str, str]:
    """A metric's row: its name, both figures, the change, the verdict, and why it is that."""
    before, after = (
        NOTHING if value is None else quantity(value, item.unit) for value in (item.before, item.after)
    )
    return (
        metric(item.metric, item.batch),
        before,
        after,
        change(item.ratio, item.low, item.high, (item.metric, item.unit)),
        item.verdict.replace("_", " "),
        (item.because or because(item)) + (" (reported)" if item.reported else ""),
    )


def remarks(view: ComparisonView) -> tuple[str, ...]:
    """What a reader of a comparison must know, and the commands that give a better answer."""
    before, after = view.before, view.after
    differs = "; ".join(
        f"{name}: {_known(values[0])}, then {_known(values[1])}" for name, values in view.differs.items()
    )
    said = (
        f"Two models: {before.model} and {after.model}." if before.model != after.model else "",
        f"Two targets: {before.target} and {after.target}." if view.across else "",
        f"The environments differ in {differs}." if differs else "",
        _again(view),
    )
    return tuple(line for line in said if line)


def code_lines(view: ComparisonView) -> tuple[str, ...]:
    """Whether both run the same code, and why kernels cannot be compared or that none changed."""
    if view.code is None:  # an older server
        return ()
    unchanged = "" if view.code.same or view.autotune else NO_KERNELS
    return tuple(line for line in (view.code.said, view.code.tuning or unchanged) if line)


def metric(name: str, batch: int | None) -> str:
    """A metric with its batch size."""
    return f"{name} batch {batch}" if batch else name


def change(
    ratio: float | None,
    low: float | None = None,
    high: float | None = None,
    what: tuple[str, str] = ("", "1"),
) -> str:
    """A ratio as a change, with its interval where there is one: `12.3 % slower (9.8 to 14.9 %)`.

    An interval so wide that it says nothing is left out, and the change with it where it may as well be none.

    Args:
        ratio: After over before, None where there is none.
        low: Lower end of its interval, or None.
        high: Its upper end, or None.
        what: The metric and its unit, which decide between slower and larger.
    """
    if ratio is None:
        return NOTHING
    if low is None or high is None or low == high:
        return moved(ratio, *what)
    if high > _WIDEST * low:
        return _UNKNOWN if low <= 1 <= high else moved(ratio, *what)
    return f"{moved(ratio, *what)} ({between(low, high, *what)})"


def kernels(item: AutotuneDifference) -> tuple[str, str]:
    """Both kernels with their parameters; of two of one template with those that differ."""
    alike = item.before == item.after
    one, other = item.before_parameters, item.after_parameters
    return (
        _kernel(item.before, one, other if alike else None),
        _kernel(item.after, other, one if alike else None),
    )


def _kernel(name: str | None, parameters: dict[str, Any] | None, beside: dict[str, Any] | None) -> str:
    if name is None:
        return NOTHING
    text = parameters_text(parameters, beside)
    return f"{name} {text}" if text else name


def cost(milliseconds: float | None) -> str:
    """What another kernel costs: `12 µs more`, `6.1 µs less`, or nothing to say where the old one was not timed again."""
    if milliseconds is None:
        return NOTHING
    return f"{quantity(abs(milliseconds), 'ms')} {'less' if milliseconds < 0 else 'more'}"


def explained(method: str | None) -> str:
    """How a change was found, in short."""
    return HOW.get(method or "", method or NOTHING)


def found_as(item: EventView, points: float | None) -> str:
    """How a flagged change was found; beside it what the history's points say, where that is another figure.

    Args:
        item: The change.
        points: The version's point over that of the one before, None where there is no such ratio.
    """
    how = "change of level" if item.kind == "change_point" else explained(item.method)
    what = (item.metric, item.unit)
    told, own = (moved(ratio, *what) if ratio else "" for ratio in (points, item.ratio))
    return f"{how}; points {told}" if told and told != own else how


def _again(view: ComparisonView) -> str:
    """What is to be measured again: what was not, and what is too noisy or from another environment.

    Beside each other where they may be: that measures both, in one environment.
    """
    mended = [item for item in view.metrics if item.metric in OF_JOBS and item.why in _MENDED]
    if not mended:
        return ""
    if not view.across and team_of(view.before.model) == team_of(view.after.model):
        return f"For a better answer: {_measure(view.after)} --beside {_reference(view.before)}"
    apart = any(item.why == "environment_differs" for item in mended)
    lacking = (
        (view.before, any(item.before is None for item in mended)),
        (view.after, any(item.after is None for item in mended)),
    )
    sides = [side for side, lacks in lacking if lacks or apart] or [view.after]
    return f"For a better answer: {'; '.join(_measure(side) for side in sides)}"


def _measure(side: SideView) -> str:
    return f"pt2hub measure {_reference(side)} --target {side.target}"


def _reference(side: SideView) -> str:
    return f"{side.model}@{side.number}"


def _named(side: SideView) -> str:
    return f"{side.model}@{side.number} for {side.target}"


def _known(value: object) -> str:
    return "unknown" if value is None else str(value)
