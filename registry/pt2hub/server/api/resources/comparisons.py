"""Comparisons, differences and flagged changes."""

from flask import Response
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel

from pt2hub.server.api.context import container, render
from pt2hub.server.api.request_shapes_performance import PERFORMANCE, ChangesQuery, CompareQuery
from pt2hub.wire.differences import DiffView
from pt2hub.wire.performance import ComparisonView, EventPage

routes = APIBlueprint("comparing", __name__, url_prefix="/api/v1", abp_tags=[PERFORMANCE])


@routes.get("/compare", responses={200: RootModel[ComparisonView]})
def compare(query: CompareQuery) -> Response:
    """Compare two artifacts: an outcome per metric, changed kernels and their cost."""
    view = container().comparisons.compare(
        query.before, query.after, target=query.target, with_target=query.with_target
    )
    return render(view)


@routes.get("/diff", responses={200: RootModel[DiffView]})
def diff(query: CompareQuery) -> Response:
    """Return the differences between two artifacts: spec, program key, graph, kernels, sizes, speed, numerics."""
    view = container().diffs.diff(
        query.before, query.after, target=query.target, with_target=query.with_target
    )
    return render(view)


@routes.get("/performance/events", responses={200: RootModel[EventPage]})
def events(query: ChangesQuery) -> Response:
    """Return flagged changes, newest first, page by page."""
    page = container().comparisons.events(
        model=query.model,
        target=query.target,
        outcome=query.outcome,
        after=query.after,
        limit=query.limit,
    )
    return render(page)
