"""Two artifacts side by side."""

from __future__ import annotations

from collections import Counter
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from flask import redirect, request, url_for

from pt2hub.domain.names import parse_model_name
from pt2hub.errors import Ambiguous, InvalidInput, NotFound, NotReady, UnknownTarget
from pt2hub.rendering.comparing import code_lines, compared, cost, kernels, remarks
from pt2hub.rendering.quantities import quantity
from pt2hub.server.api.context import container
from pt2hub.server.api.problems import status_of
from pt2hub.server.pages.charts import machine
from pt2hub.server.pages.figures import parse_choice
from pt2hub.server.pages.intervals import Interval, interval
from pt2hub.server.pages.rendering import page
from pt2hub.server.pages.routes import routes

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.wrappers import Response as WerkzeugResponse

    from pt2hub.errors import Pt2hubError
    from pt2hub.wire.performance import AutotuneDifference, ComparisonView, MetricComparison, SideView

_FIELDS = ("before", "after", "target", "with_target")
_LONGEST = 400
_VERDICTS = ("worse", "better", "same", "not_comparable")
"""In the order in which they are counted: what matters first."""
_REFUSED = (Ambiguous, InvalidInput, NotFound, NotReady, UnknownTarget)
_CHOSEN = 2


@routes.get("/compare")
def compare() -> WerkzeugResponse:
    """Two artifacts, a verdict for each metric; a form where nothing was named yet."""
    if points := request.args.getlist("point"):
        return redirect(_address_of(request.args.get("model", ""), points), HTTPStatus.FOUND)
    given = {name: request.args.get(name, "").strip()[:_LONGEST] for name in _FIELDS}
    if not given["before"] and not given["after"]:
        return _form(given)
    try:
        view = container().comparing.compare(
            _reference(given["before"], "before"),
            _reference(given["after"], "after"),
            target=given["target"] or None,
            with_target=given["with_target"] or None,
        )
    except _REFUSED as error:
        return _form(given, error)
    return page("compare.html", room="compare", given=given, error=None, **_shown(view))


def _form(given: dict[str, str], error: Pt2hubError | None = None) -> Response:
    """The form, with what was typed and why that is no comparison."""
    ways = _ways(given, error)
    # Links name versions, readers choose targets: that more than one is meant is a question and no error.
    failed = None if isinstance(error, Ambiguous) and ways else error
    return page(
        "compare.html",
        room="compare",
        status=status_of(type(failed)) if failed else HTTPStatus.OK,
        given=given,
        error=failed,
        view=None,
        ways=ways,
    )


def _ways(given: dict[str, str], error: Pt2hubError | None) -> list[tuple[str, str]]:
    """The comparisons that may have been meant: of each target that there is, if both sides are of one."""
    targets = error.context.get("targets") if isinstance(error, Ambiguous | NotFound) else None
    if not isinstance(targets, list) or given["before"] == given["after"] or given["with_target"]:
        return []
    before, after = given["before"], given["after"]
    return [(to, url_for("pages.compare", before=before, after=after, target=to)) for to in targets]


def _reference(text: str, name: str) -> str:
    if not text:
        raise InvalidInput(
            f"There is nothing to compare: {name} is empty",
            where=name,
            hint="Write team/name@3, team/name@prod, or team/name for its newest ready version.",
        )
    return text


def _address_of(model: str, points: list[str]) -> str:
    """The address of the comparison of two rows that were chosen in a table."""
    parse_model_name(model)
    if len(points) != _CHOSEN:
        raise InvalidInput(
            f"{len(points)} rows were chosen, and two are compared" if points[1:] else "One row was chosen",
            where="point",
            hint="Go back and choose two rows.",
        )
    one, other = sorted(map(parse_choice, points))
    return url_for(
        "pages.compare",
        before=f"{model}@{one[0]}",
        after=f"{model}@{other[0]}",
        target=one[1],
        with_target=other[1] if other[1] != one[1] else None,
    )


def _shown(view: ComparisonView) -> dict[str, Any]:
    counts = Counter(item.verdict for item in view.metrics)
    return {
        "view": view,
        "ways": [],
        "rows": [_row(item) for item in view.metrics],
        "counts": [(verdict, counts[verdict]) for verdict in _VERDICTS if counts[verdict]],
        "kernels": [_kernel(item) for item in view.autotune],
        "code": code_lines(view),
        "told": remarks(view),
        "sides": [_side("Before", view.before), _side("After", view.after)],
        "swapped": _address(view.after, view.before),
        "document": _address(view.before, view.after, "comparing.compare"),
        "command": _command(view),
    }


def _row(item: MetricComparison) -> tuple[MetricComparison, tuple[str, ...], Interval | None]:
    return item, compared(item), interval(item)


def _side(label: str, side: SideView) -> dict[str, Any]:
    team, _, name = side.model.partition("/")
    return {"label": label, "side": side, "team": team, "name": name, "machine": machine(side.environment)}


def _address(before: SideView, after: SideView, endpoint: str = "pages.compare") -> str:
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
