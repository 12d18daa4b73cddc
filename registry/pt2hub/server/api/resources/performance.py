"""Histories of measurements."""

from flask import Response, request
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel

from pt2hub.domain.performance.metrics import SeriesFilter
from pt2hub.rendering.tabular import CSV_TYPE, history_csv
from pt2hub.server.api.context import container, render
from pt2hub.server.api.request_shapes import ModelPath
from pt2hub.server.api.request_shapes_performance import PERFORMANCE, EvaluationsQuery, History, HistoryQuery
from pt2hub.wire.documents import JSON_TYPE
from pt2hub.wire.evaluations import EvaluationPage
from pt2hub.wire.performance import HistoryView, SeriesList

routes = APIBlueprint("performance", __name__, url_prefix="/api/v1", abp_tags=[PERFORMANCE])


@routes.get("/models/<team>/<name>/history", responses={200: History})
def history(path: ModelPath, query: HistoryQuery) -> Response:
    """Return a metric's history over a model's versions, one series per target, batch size and environment; also as CSV."""
    wanted = SeriesFilter(query.metric, query.implementation, query.target, query.batch, query.environment)
    view = container().performance.history(
        f"{path.team}/{path.name}", wanted, before=query.before, limit=query.limit
    )
    response = _csv(view) if _wants_csv(query.format) else render(view)
    response.vary.add("Accept")
    return response


@routes.get("/models/<team>/<name>/metrics", responses={200: RootModel[SeriesList]})
def metrics(path: ModelPath) -> Response:
    """Return the series of a model with their latest values."""
    return render(container().performance.series(f"{path.team}/{path.name}"))


@routes.get("/models/<team>/<name>/evaluations", responses={200: RootModel[EvaluationPage]})
def evaluations(path: ModelPath, query: EvaluationsQuery) -> Response:
    """Return the evaluations of a model's versions, newest report first, page by page."""
    return render(
        container().evaluations.evaluations(
            f"{path.team}/{path.name}",
            metric=query.metric,
            data_set=query.data_set,
            before=query.before,
            limit=query.limit,
        )
    )


def _wants_csv(asked: str | None) -> bool:
    if asked is not None:
        return asked == "csv"
    return request.accept_mimetypes.best_match([JSON_TYPE, CSV_TYPE]) == CSV_TYPE


def _csv(view: HistoryView) -> Response:
    response = Response(history_csv(view), mimetype=CSV_TYPE)
    name = f"{view.model.replace('/', '-')}-{view.metric}.csv"  # both are plain names
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
