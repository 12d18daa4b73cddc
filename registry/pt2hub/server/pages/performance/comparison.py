"""Page that compares two artifacts."""

from __future__ import annotations

from collections import Counter
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from flask import redirect, request, url_for

from pt2hub.domain.names import parse_model_name
from pt2hub.errors import InvalidInput
from pt2hub.rendering.comparisons import (
    BETTER,
    code_lines,
    comparison_row,
    cost,
    kernels,
    operation_shapes,
    remarks,
    repeat_commands,
)
from pt2hub.rendering.quantities import quantity
from pt2hub.server.api.context import container
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.performance.artifact_pairs import (
    FORM_ERRORS,
    form,
    pair_command,
    pair_url,
    read_fields,
    selection,
    side,
)
from pt2hub.server.pages.performance.intervals import Interval, interval
from pt2hub.server.pages.performance.measurement_table import parse_choice
from pt2hub.server.pages.templates import page

if TYPE_CHECKING:
    from werkzeug.wrappers import Response as WerkzeugResponse

    from pt2hub.wire.performance import AutotuneDifference, ComparisonView, MetricComparison

_ENDPOINT = "pages.compare"
_OUTCOMES = ("worse", "better", "same", "inconclusive")
"""In the order of the counts."""
_SELECTED = 2


@routes.get("/compare")
def compare() -> WerkzeugResponse:
    """Compare two artifacts, or show the form if none are named."""
    if points := request.args.getlist("point"):
        return redirect(_url_of_points(request.args.get("model", ""), points), HTTPStatus.FOUND)
    given = read_fields()
    if not given["before"] and not given["after"]:
        return form("compare.html", _ENDPOINT, given)
    try:
        view = container().comparisons.compare(**selection(given))
    except FORM_ERRORS as error:
        return form("compare.html", _ENDPOINT, given, error)
    return page("compare.html", section="compare", given=given, error=None, **_comparison_context(view))


def _url_of_points(model: str, points: list[str]) -> str:
    """Return the URL of the comparison of two selected table rows."""
    parse_model_name(model)
    if len(points) != _SELECTED:
        raise InvalidInput(
            f"Select two rows to compare, got {len(points)}",
            where="point",
            hint="Go back and select exactly two rows.",
        )
    one, other = sorted(map(parse_choice, points))
    return url_for(
        "pages.compare",
        before=f"{model}@{one[0]}",
        after=f"{model}@{other[0]}",
        target=one[1],
        with_target=other[1] if other[1] != one[1] else None,
    )


def _comparison_context(view: ComparisonView) -> dict[str, Any]:
    counts = Counter(item.outcome for item in view.metrics)
    return {
        "view": view,
        "target_links": [],
        "rows": [_row(item) for item in view.metrics],
        "counts": [(outcome, counts[outcome]) for outcome in _OUTCOMES if counts[outcome]],
        "kernels": [_kernel(item) for item in view.autotune],
        "code": code_lines(view),
        "remarks": remarks(view),
        "better": BETTER,
        "repeat_commands": repeat_commands(view),
        "sides": [side("Before", view.before), side("After", view.after)],
        "swapped": pair_url(view.after, view.before, _ENDPOINT),
        "differences": pair_url(view.before, view.after, "pages.diff"),
        "document": pair_url(view.before, view.after, "comparing.compare"),
        "command": pair_command("compare", view.before, view.after),
    }


def _row(item: MetricComparison) -> tuple[MetricComparison, tuple[str, ...], Interval | None]:
    return item, comparison_row(item), interval(item)


def _kernel(item: AutotuneDifference) -> dict[str, str]:
    before, after = kernels(item)
    return {
        "op": item.op,
        "shapes": operation_shapes(item),
        "before": before,
        "after": after,
        "before_ms": _time(item.before_ms),
        "after_ms": _time(item.after_ms),
        "cost": cost(item.cost_ms),
    }


def _time(milliseconds: float | None) -> str:
    return quantity(milliseconds, "ms") if milliseconds is not None else "-"
