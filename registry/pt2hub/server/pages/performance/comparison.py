"""Page that compares two artifacts."""

from __future__ import annotations

from collections import Counter
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from flask import redirect, request, url_for

from pt2hub.domain.names import parse_model_name
from pt2hub.errors import Ambiguous, InvalidInput, NotFound, NotReady, UnknownTarget
from pt2hub.rendering.comparisons import (
    BETTER,
    code_lines,
    comparison_row,
    cost,
    kernels,
    remarks,
    repeat_commands,
)
from pt2hub.rendering.quantities import quantity
from pt2hub.server.api.context import container
from pt2hub.server.api.problems import status_of
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.performance.charts import machine
from pt2hub.server.pages.performance.intervals import Interval, interval
from pt2hub.server.pages.performance.measurement_table import parse_choice
from pt2hub.server.pages.templates import page

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.wrappers import Response as WerkzeugResponse

    from pt2hub.errors import Pt2hubError
    from pt2hub.wire.performance import AutotuneDifference, ComparisonView, MetricComparison, SideView

_FIELDS = ("before", "after", "target", "with_target")
_MAX_LENGTH = 400
_OUTCOMES = ("worse", "better", "same", "inconclusive")
"""In the order of the counts."""
_FORM_ERRORS = (Ambiguous, InvalidInput, NotFound, NotReady, UnknownTarget)
_SELECTED = 2


@routes.get("/compare")
def compare() -> WerkzeugResponse:
    """Compare two artifacts, or show the form if none are named."""
    if points := request.args.getlist("point"):
        return redirect(_url_of_points(request.args.get("model", ""), points), HTTPStatus.FOUND)
    given = {name: request.args.get(name, "").strip()[:_MAX_LENGTH] for name in _FIELDS}
    if not given["before"] and not given["after"]:
        return _form(given)
    try:
        view = container().comparisons.compare(
            _reference(given["before"], "before"),
            _reference(given["after"], "after"),
            target=given["target"] or None,
            with_target=given["with_target"] or None,
        )
    except _FORM_ERRORS as error:
        return _form(given, error)
    return page("compare.html", section="compare", given=given, error=None, **_comparison_context(view))


def _form(given: dict[str, str], error: Pt2hubError | None = None) -> Response:
    """Return the form with what was typed and its error."""
    links = _target_links(given, error)
    # Links name versions and readers choose a target: an ambiguous reference is a question, not an error.
    failed = None if isinstance(error, Ambiguous) and links else error
    return page(
        "compare.html",
        section="compare",
        status=status_of(type(failed)) if failed else HTTPStatus.OK,
        given=given,
        error=failed,
        view=None,
        target_links=links,
    )


def _target_links(given: dict[str, str], error: Pt2hubError | None) -> list[tuple[str, str]]:
    """Return a link for each target on which both sides can be compared."""
    targets = error.context.get("targets") if isinstance(error, Ambiguous | NotFound) else None
    if not isinstance(targets, list) or given["before"] == given["after"] or given["with_target"]:
        return []
    before, after = given["before"], given["after"]
    return [
        (target, url_for("pages.compare", before=before, after=after, target=target)) for target in targets
    ]


def _reference(text: str, name: str) -> str:
    if not text:
        raise InvalidInput(
            f"{name.capitalize()} is required",
            where=name,
            hint="Enter team/name@3, team/name@prod, or team/name for the newest ready version.",
        )
    return text


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
        "sides": [_side("Before", view.before), _side("After", view.after)],
        "swapped": _url(view.after, view.before),
        "document": _url(view.before, view.after, "comparing.compare"),
        "command": _command(view),
    }


def _row(item: MetricComparison) -> tuple[MetricComparison, tuple[str, ...], Interval | None]:
    return item, comparison_row(item), interval(item)


def _side(label: str, side: SideView) -> dict[str, Any]:
    team, _, name = side.model.partition("/")
    return {"label": label, "side": side, "team": team, "name": name, "machine": machine(side.environment)}


def _url(before: SideView, after: SideView, endpoint: str = "pages.compare") -> str:
    return url_for(
        endpoint,
        before=f"{before.model}@{before.number}",
        after=f"{after.model}@{after.number}",
        target=before.target,
        with_target=after.target if after.target != before.target else None,
    )


def _command(view: ComparisonView) -> str:
    before, after = view.before, view.after
    other = f" --with-target {after.target}" if view.across else ""
    names = f"{before.model}@{before.number} {after.model}@{after.number}"
    return f"pt2hub compare {names} --target {before.target}{other}"


def _kernel(item: AutotuneDifference) -> dict[str, str]:
    before, after = kernels(item)
    shapes = ["x".join(map(str, shape)) if isinstance(shape, list) else str(shape) for shape in item.shapes]
    return {
        "op": item.op,
        "shapes": " ".join(shapes),
        "before": before,
        "after": after,
        "before_ms": _time(item.before_ms),
        "after_ms": _time(item.after_ms),
        "cost": cost(item.cost_ms),
    }


def _time(milliseconds: float | None) -> str:
    return quantity(milliseconds, "ms") if milliseconds is not None else "-"
