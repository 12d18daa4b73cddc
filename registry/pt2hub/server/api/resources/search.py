"""Search over everything."""

from flask import Response
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel

from pt2hub.server.api.context import container, render
from pt2hub.server.api.request_shapes import MODELS, SearchQuery
from pt2hub.wire.search import SearchResults

routes = APIBlueprint("search", __name__, url_prefix="/api/v1", abp_tags=[MODELS])


@routes.get("/search", responses={200: RootModel[SearchResults]})
def search(query: SearchQuery) -> Response:
    """Return models, versions by digest, builds by id, targets and people that a text names or that contain it."""
    return render(container().search.search(query.q, limit=query.limit))
