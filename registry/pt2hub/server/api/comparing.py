"""Comparisons and flagged changes."""

from flask import Response
from flask_openapi3.blueprint import APIBlueprint

from pt2hub.server.api.context import container, render
from pt2hub.server.api.performance_shapes import (
    PERFORMANCE,
    Changes,
    ChangesQuery,
    CompareQuery,
    Comparison,
)

routes = APIBlueprint("comparing", __name__, url_prefix="/api/v1", abp_tags=[PERFORMANCE])


@routes.get("/compare", responses={200: Comparison})
def compare(query: CompareQuery) -> Response:
    """Two artifacts side by side: a verdict for each metric, kernels that changed and what they cost."""
    view = container().comparing.compare(
        query.before, query.after, target=query.target, with_target=query.with_target
    )
    return render(view)


@routes.get("/performance/events", responses={200: Changes})
def events(query: ChangesQuery) -> Response:
    """Changes for the better or worse that were flagged, newest first, page by page."""
    page = container().comparing.events(
        model=query.model,
        target=query.target,
        verdict=query.verdict,
        after=query.after,
        limit=query.limit,
    )
    return render(page)
