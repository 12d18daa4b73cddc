"""Tuned operations with another kernel as text: both kernels with their times, and whether these can explain a change.

Each side's time comes from that side's own autotuning, of one run of the operation. Where that ran is not recorded: times
have no difference if the measurements of the two sides, which usually ran there too, are of different environments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.performance.autotune import parameters_text
from pt2hub.rendering.changes import MIN_SHOWN_CHANGE, SAME
from pt2hub.rendering.comparison_answers import find_speed
from pt2hub.rendering.lists import join_words
from pt2hub.rendering.quantities import quantity
from pt2hub.rendering.reasons import NOTHING

if TYPE_CHECKING:
    from typing import Any

    from pt2hub.wire.performance import AutotuneDifference, ComparisonView, MetricComparison

KERNEL_HEADINGS = ("Operation", "Shapes", "Before", "After", "Difference", "Other choice")


def kernels(item: AutotuneDifference) -> tuple[str, str]:
    """Return both kernels with their parameters; only differing ones if both use one template."""
    alike = item.before == item.after
    one, other = item.before_parameters, item.after_parameters
    return (
        _kernel(item.before, one, other if alike else None),
        _kernel(item.after, other, one if alike else None),
    )


def kernel_rows(view: ComparisonView) -> tuple[tuple[str, ...], ...]:
    """Return a row for each operation with another kernel: the cells of `KERNEL_HEADINGS`."""
    return tuple(_kernel_row(view, item) for item in view.autotune)


def operation_shapes(item: AutotuneDifference) -> str:
    """Return the shapes of an operation's inputs as text."""
    shapes = ["x".join(map(str, shape)) if isinstance(shape, list) else str(shape) for shape in item.shapes]
    return " ".join(shapes)


def difference_ms(view: ComparisonView, item: AutotuneDifference) -> float | None:
    """Return the time of the new kernel minus that of the old one; None unless both were timed in the same way."""
    if item.before_ms is None or item.after_ms is None or explain_no_difference(view):
        return None
    difference = item.after_ms - item.before_ms
    return 0.0 if abs(difference) < MIN_SHOWN_CHANGE * item.before_ms else difference


def explain_no_difference(view: ComparisonView) -> str:
    """Return why the kernel times of the two sides have no difference, as a sentence; empty if they have one."""
    if view.across:
        reason = "the targets differ"
    elif view.differs:
        reason = f"the environments of the measurements differ in {join_words(name.replace('_', ' ') for name in view.differs)}"
    elif not (view.before.environment and view.after.environment):
        side = "After" if view.before.environment else "Before"
        reason = f"the environment of the {side} side is unknown, as it is not measured"
    else:
        return ""
    return f"The kernel times of the two sides are not comparable: {reason}."


def describe_difference(milliseconds: float | None) -> str:
    """Return a difference of times: `12 µs more`, `6.1 µs less`, `no change`; a dash if there is none."""
    if milliseconds is None:
        return NOTHING
    return _more_or_less(milliseconds) or SAME


def describe_other_choice(item: AutotuneDifference) -> str:
    """Return how the second side timed the kernel that the first one chose, in words; a dash if it did not."""
    if item.cost_ms is None:
        return NOTHING
    return f"on the After side, the Before kernel took {_more_or_less(-item.cost_ms) or 'as long'}"


def explain_change(view: ComparisonView) -> str:
    """Say that the kernels that changed do not explain the measured change; empty if they may explain it.

    How often a call runs an operation, and at which size, is not known: only kernels of which none changed its time in the
    direction of the call surely explain nothing.
    """
    item = find_speed(view).item
    whole = _change_ms(item) if item else None
    found = [difference_ms(view, kernel) for kernel in view.autotune]
    if item is None or whole is None or not found:
        return ""
    if any(difference is None or difference * whole > 0 for difference in found):
        return ""
    batch = f" at batch {item.batch}" if item.batch else ""
    return (
        f"A call{batch} takes {_more_or_less(whole)}, and the kernel times of autotuning do not explain that: "
        f"no tuned operation with another kernel takes {'longer' if whole > 0 else 'less time'}."
    )


def _change_ms(item: MetricComparison) -> float | None:
    """Return how much longer a call takes, by the ratio that decided the outcome; None unless it changed."""
    if item.outcome not in ("worse", "better") or item.unit != "ms" or not item.before or not item.ratio:
        return None
    return item.before * (item.ratio - 1)


def _more_or_less(milliseconds: float) -> str:
    """Return a difference as `12 µs more` or `6.1 µs less`; empty if there is none."""
    if not milliseconds:
        return ""
    amount = float(f"{abs(milliseconds):.6g}")  # a difference of floats: 0.9999999 ms is 1 ms, not 1,000 µs
    return f"{quantity(amount, 'ms')} {'less' if milliseconds < 0 else 'more'}"


def _kernel_row(view: ComparisonView, item: AutotuneDifference) -> tuple[str, ...]:
    before, after = kernels(item)
    return (
        item.op,
        operation_shapes(item),
        _timed(before, item.before_ms),
        _timed(after, item.after_ms),
        describe_difference(difference_ms(view, item)),
        describe_other_choice(item),
    )


def _timed(name: str, milliseconds: float | None) -> str:
    return f"{name} {quantity(milliseconds, 'ms')}" if milliseconds is not None else name


def _kernel(name: str | None, parameters: dict[str, Any] | None, beside: dict[str, Any] | None) -> str:
    if name is None:
        return NOTHING
    text = parameters_text(parameters, beside)
    return f"{name} {text}" if text else name
