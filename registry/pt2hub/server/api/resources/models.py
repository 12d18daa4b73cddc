"""Models."""

from flask import Response
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel

from pt2hub.server.api.context import body, caller, container, render
from pt2hub.server.api.request_shapes import MODELS, TOKEN, ModelChange, ModelPath, ModelsQuery, json_body
from pt2hub.wire.responses import ModelPage, ModelView

routes = APIBlueprint("models", __name__, url_prefix="/api/v1", abp_tags=[MODELS])

_MAX_CHANGE_BYTES = 1 << 15
_HINT = 'Send {"description": "..."}.'


@routes.get("/models", responses={200: RootModel[ModelPage]})
def models(query: ModelsQuery) -> Response:
    """Return the models in the order of their names, page by page."""
    return render(
        container().catalog.models(query.search, labels=query.label, after=query.after, limit=query.limit)
    )


@routes.get("/models/<team>/<name>", responses={200: RootModel[ModelView]})
def model(path: ModelPath) -> Response:
    """Return a model with its number of versions, newest version and aliases."""
    return render(container().catalog.model(f"{path.team}/{path.name}"))


@routes.patch(
    "/models/<team>/<name>",
    responses={200: RootModel[ModelView]},
    security=TOKEN,
    openapi_extensions=json_body(ModelChange),
)
def change(path: ModelPath) -> Response:
    """Set a model's description; the last change wins."""
    wanted = body(ModelChange, most=_MAX_CHANGE_BYTES, what="The model change", hint=_HINT)
    return render(container().catalog.describe(f"{path.team}/{path.name}", wanted.description, by=caller()))
