"""Histories of figures."""

from flask import Response, request
from flask_openapi3.blueprint import APIBlueprint

from pt2hub.domain.performance import SeriesFilter
from pt2hub.server.api.context import container, render
from pt2hub.server.api.performance_shapes import (
    PERFORMANCE,
    Front,
    FrontQuery,
    History,
    HistoryQuery,
    SeriesOfModel,
)
from pt2hub.server.api.shapes import ModelPath
from pt2hub.wire.documents import JSON_TYPE
from pt2hub.wire.performance import HistoryView
from pt2hub.wire.tabular import CSV_TYPE, history_csv

routes = APIBlueprint("performance", __name__, url_prefix="/api/v1", abp_tags=[PERFORMANCE])


@routes.get("/models/<team>/<name>/history", responses={200: History})
def history(path: ModelPath, query: HistoryQuery) -> Response:
    """How a metric moved over a model's versions: a series per target, batch and environment; also as CSV."""
    wanted = SeriesFilter(query.metric, query.subject, query.target, query.batch, query.environment)
    view = container().performance.history(
        f"{path.team}/{path.name}", wanted, before=query.before, limit=query.limit
    )
    response = _csv(view) if _wants_csv(query.format) else render(view)
    response.vary.add("Accept")
    return response


@routes.get("/models/<team>/<name>/metrics", responses={200: SeriesOfModel})
def metrics(path: ModelPath) -> Response:
    """What is measured of a model: its series with their last values."""
    return render(container().performance.series(f"{path.team}/{path.name}"))


@routes.get("/performance/front", responses={200: Front})
def front(query: FrontQuery) -> Response:
    """Models with the newest figures first, a sparkline for each of their targets, page by page."""
    return render(container().performance.sparklines(after=query.after, limit=query.limit))


def _wants_csv(asked: str | None) -> bool:
    if asked is not None:
        return asked == "csv"
    return request.accept_mimetypes.best_match([JSON_TYPE, CSV_TYPE]) == CSV_TYPE


def _csv(view: HistoryView) -> Response:
    response = Response(history_csv(view), mimetype=CSV_TYPE)
    name = f"{view.model.replace('/', '-')}-{view.metric}.csv"  # both are plain names
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
