"""Models."""

from flask import Response
from flask_openapi3.blueprint import APIBlueprint

from pt2hub.server.api.context import body, container, render
from pt2hub.server.api.shapes import (
    MODELS,
    TOKEN,
    Model,
    ModelChange,
    ModelPath,
    Models,
    ModelsQuery,
    json_body,
)

routes = APIBlueprint("models", __name__, url_prefix="/api/v1", abp_tags=[MODELS])

_MAX_CHANGE_BYTES = 1 << 15
_HINT = 'Send {"description": "..."}.'


@routes.get("/models", responses={200: Models})
def models(query: ModelsQuery) -> Response:
    """Models in the order of their names, page by page."""
    return render(container().catalog.models(query.search, after=query.after, limit=query.limit))


@routes.get("/models/<team>/<name>", responses={200: Model})
def model(path: ModelPath) -> Response:
    """A model: how many versions it has, which is the newest, where its aliases are."""
    return render(container().catalog.model(f"{path.team}/{path.name}"))


@routes.patch(
    "/models/<team>/<name>",
    responses={200: Model},
    security=TOKEN,
    openapi_extensions=json_body(ModelChange),
)
def change(path: ModelPath) -> Response:
    """Says what a model is, for people; the last one to say so is right."""
    wanted = body(ModelChange, most=_MAX_CHANGE_BYTES, what="The change of a model", hint=_HINT)
    return render(container().catalog.describe(f"{path.team}/{path.name}", wanted.description))
