"""Models."""

from flask import Response
from flask_openapi3.blueprint import APIBlueprint

from pt2hub.server.api.context import container, render
from pt2hub.server.api.shapes import MODELS, Model, ModelPath, Models, ModelsQuery

routes = APIBlueprint("models", __name__, url_prefix="/api/v1", abp_tags=[MODELS])


@routes.get("/models", responses={200: Models})
def models(query: ModelsQuery) -> Response:
    """Models in the order of their names, page by page."""
    return render(container().catalog.models(query.search, after=query.after, limit=query.limit))


@routes.get("/models/<team>/<name>", responses={200: Model})
def model(path: ModelPath) -> Response:
    """A model: how many versions it has, which is the newest, where its aliases are."""
    return render(container().catalog.model(f"{path.team}/{path.name}"))
