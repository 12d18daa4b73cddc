"""Labels of models and versions, and search for versions."""

from flask import Response
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel

from pt2hub.server.api.context import body, caller, container, render
from pt2hub.server.api.request_shapes import (
    MODELS,
    TOKEN,
    LabelChange,
    ModelPath,
    VersionPath,
    VersionSearchQuery,
    json_body,
)
from pt2hub.wire.responses import FoundVersions, LabelList

routes = APIBlueprint("labels", __name__, url_prefix="/api/v1", abp_tags=[MODELS])

_MAX_CHANGE_BYTES = 1 << 18
"""Larger than `MAX_LABELS` values of `MAX_VALUE_CHARS` characters."""
_HINT = 'Send {"set": {"owner": "search"}, "remove": ["stage"]}.'


@routes.get("/versions", responses={200: RootModel[FoundVersions]})
def search(query: VersionSearchQuery) -> Response:
    """Return the versions of all models that meet all conditions, newest first, page by page."""
    return render(container().catalog.search(query.where, after=query.after, limit=query.limit))


@routes.get("/models/<team>/<name>/labels", responses={200: RootModel[LabelList]})
def labels_of_model(path: ModelPath) -> Response:
    """Return the labels of a model itself, with who set them; a version has its own in its document."""
    return render(LabelList(container().labels.of_model(f"{path.team}/{path.name}")))


@routes.patch(
    "/models/<team>/<name>/labels",
    responses={200: RootModel[LabelList]},
    security=TOKEN,
    openapi_extensions=json_body(LabelChange),
)
def label_model(path: ModelPath) -> Response:
    """Set and remove labels of a model itself; its versions have their own."""
    return _change(f"{path.team}/{path.name}", None)


@routes.patch(
    "/models/<team>/<name>/versions/<number>/labels",
    responses={200: RootModel[LabelList]},
    security=TOKEN,
    openapi_extensions=json_body(LabelChange),
)
def label_version(path: VersionPath) -> Response:
    """Set and remove labels of a version; facts about its origin (`git.sha`, `run`, `data`) are written once."""
    return _change(f"{path.team}/{path.name}", path.number)


def _change(model: str, number: int | None) -> Response:
    wanted = body(LabelChange, most=_MAX_CHANGE_BYTES, what="The label change", hint=_HINT)
    labels = container().labels.change(
        model, number, put=wanted.set, remove=wanted.remove, expected=wanted.expected, by=caller()
    )
    return render(LabelList(labels))
