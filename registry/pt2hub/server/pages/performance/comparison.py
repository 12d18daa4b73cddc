"""Page that compares two artifacts."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from flask import redirect, request, url_for

from pt2hub.domain.names import parse_model_name
from pt2hub.errors import Ambiguous, InvalidInput
from pt2hub.rendering.changed_kernels import (
    describe_difference,
    describe_other_choice,
    difference_ms,
    explain_change,
    explain_no_difference,
    kernels,
    operation_shapes,
)
from pt2hub.rendering.changed_parts import describe_changed_parts
from pt2hub.rendering.comparison_answers import answer_comparison
from pt2hub.rendering.comparisons import BETTER, code_lines, remarks, repeat_commands
from pt2hub.rendering.quantities import quantity
from pt2hub.server.api.context import container
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.performance.artifact_pairs import (
    FORM_ERRORS,
    common_targets,
    form,
    pair_command,
    pair_url,
    read_fields,
    selection,
    side,
)
from pt2hub.server.pages.performance.comparison_groups import group_metrics
from pt2hub.server.pages.performance.measurement_table import parse_choice
from pt2hub.server.pages.performance.target_comparisons import compare_targets
from pt2hub.server.pages.templates import page

if TYPE_CHECKING:
    from werkzeug.wrappers import Response as WerkzeugResponse

    from pt2hub.wire.performance import AutotuneDifference, ComparisonView

_ENDPOINT = "pages.compare"
_MAX_KERNELS = 8
"""Changed kernels that are shown open, those with the largest difference first."""
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
        targets = common_targets(given, error) if isinstance(error, Ambiguous) else []
        if targets:
            return _overview(given, targets)
        return form("compare.html", _ENDPOINT, given, error)
    return page("compare.html", section="compare", given=given, error=None, **_comparison_context(view))


def _overview(given: dict[str, str], targets: list[str]) -> WerkzeugResponse:
    """Compare two versions on every target that both have."""
    overview = compare_targets(given["before"], given["after"], targets, container().comparisons)
    return page(
        "compare_targets.html",
        section="compare",
        given=given,
        overview=overview,
        changed_parts=_changed_parts(overview.first),
        differences=pair_url(overview.before, overview.after, "pages.diff"),
    )


def _changed_parts(view: ComparisonView) -> str:
    """Return what changed between two artifacts, as a sentence; empty if that is unknown."""
    parts = container().diffs.changed_parts(view)
    return describe_changed_parts(parts) if parts else ""


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
    groups, notes = group_metrics(view.metrics)
    changed = sorted(view.autotune, key=lambda item: _importance(view, item), reverse=True)
    return {
        "view": view,
        "target_links": [],
        "answer": answer_comparison([view]),
        "changed_parts": _changed_parts(view),
        "groups": groups,
        "notes": notes,
        "confidence": next((item.confidence for item in view.metrics if item.confidence), 0.99),
        "kernels": [_kernel(view, item) for item in changed[:_MAX_KERNELS]],
        "more_kernels": [_kernel(view, item) for item in changed[_MAX_KERNELS:]],
        "unexplained": explain_change(view),
        "no_difference": explain_no_difference(view),
        "code": code_lines(view),
        "remarks": remarks(view),
        "better": BETTER,
        "repeat_commands": repeat_commands(view),
        "sides": [side("Before", view.before), side("After", view.after)],
        "swapped": pair_url(view.after, view.before, _ENDPOINT),
        "every_target": _every_target(view),
        "differences": pair_url(view.before, view.after, "pages.diff"),
        "document": pair_url(view.before, view.after, "comparing.compare"),
        "command": pair_command("compare", view.before, view.after),
    }


def _every_target(view: ComparisonView) -> str | None:
    """Return the URL of the comparison on all targets, None where the two are of one version or two targets."""
    before, after = (f"{side.model}@{side.number}" for side in (view.before, view.after))
    return None if view.across or before == after else url_for(_ENDPOINT, before=before, after=after)


def _importance(view: ComparisonView, item: AutotuneDifference) -> tuple[float, float]:
    """Return the key that orders kernels: by the difference of their times, else by what the other choice costs."""
    return abs(difference_ms(view, item) or 0.0), abs(item.cost_ms or 0.0)


def _kernel(view: ComparisonView, item: AutotuneDifference) -> dict[str, str]:
    before, after = kernels(item)
    return {
        "op": item.op,
        "shapes": operation_shapes(item),
        "before": before,
        "after": after,
        "before_ms": _time(item.before_ms),
        "after_ms": _time(item.after_ms),
        "difference": describe_difference(difference_ms(view, item)),
        "other_choice": describe_other_choice(item),
    }


def _time(milliseconds: float | None) -> str:
    return quantity(milliseconds, "ms") if milliseconds is not None else "-"
