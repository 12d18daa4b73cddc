"""Sheets of comparisons and flagged changes, and their parts in the words of people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.names import team_of
from pt2hub.domain.performance import OF_JOBS
from pt2hub.wire.printing import Sheet
from pt2hub.wire.quantities import percent, quantity

if TYPE_CHECKING:
    from pt2hub.wire.performance import ComparisonView, EventView, MetricComparison, SideView

NOTHING = "-"
_UNKNOWN = "unknown"
_WIDEST = 10
"""Upper over lower end of an interval that is worth showing."""
_MENDED = frozenset(("not_measured", "too_noisy", "too_few", "environment_differs"))
"""Why there is no verdict that more figures can give."""
_WHY = {
    "environment_differs": "environments differ",
    "too_few": "too few figures",
    "unit_differs": "units differ",
    "no_direction": "no direction",
}
_HOW = {"paired": "side by side", "replicates": "separate runs", "series": "usual noise"}


def comparison(view: ComparisonView) -> Sheet:
    """A comparison: one row for each metric, what to know, and what gives a better answer."""
    rows = tuple(compared(item) for item in view.metrics)
    return Sheet(f"{_named(view.after)} against {_named(view.before)}", rows, remarks(view))


def event(view: EventView) -> Sheet:
    """A flagged change."""
    what = f"{metric(view.metric, view.batch)} {view.verdict}"
    row = (view.target, change(view.ratio, view.low, view.high), f"since {view.before}", view.at)
    return Sheet(f"{view.model}@{view.number} {what}", (row,))


def compared(item: MetricComparison) -> tuple[str, str, str, str, str, str]:
    """A metric's row: its name, both figures, the change, the verdict, and how or why not."""
    before, after = (
        NOTHING if value is None else quantity(value, item.unit) for value in (item.before, item.after)
    )
    return (
        metric(item.metric, item.batch),
        before,
        after,
        change(item.ratio, item.low, item.high),
        item.verdict.replace("_", " "),
        explained(item.method, item.why, item.detail) + (" (reported)" if item.reported else ""),
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


def metric(name: str, batch: int | None) -> str:
    """A metric with its batch size."""
    return f"{name} batch {batch}" if batch else name


def change(ratio: float | None, low: float | None = None, high: float | None = None) -> str:
    """A ratio as a change, with its interval where there is one: `+12.3 % (+9.8 % to +14.9 %)`.

    An interval so wide that it says nothing is left out, and the change with it where it may as well be none.
    """
    if ratio is None:
        return NOTHING
    if low is None or high is None or low == high:
        return percent(ratio)
    if high > _WIDEST * low:
        return _UNKNOWN if low <= 1 <= high else percent(ratio)
    return f"{percent(ratio)} ({percent(low)} to {percent(high)})"


def explained(method: str | None, why: str | None = None, detail: str | None = None) -> str:
    """How a verdict was reached, or why there is none."""
    if why:
        words = _WHY.get(why, why.replace("_", " "))
        return f"{words}: {detail}" if detail else words
    return _HOW.get(method or "", method or NOTHING)


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
