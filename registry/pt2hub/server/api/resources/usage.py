"""Usage of teams."""

from flask import Response
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel

from pt2hub.server.api.context import container, render
from pt2hub.server.api.request_shapes import SERVER, UsageQuery
from pt2hub.wire.usage import UsageView

routes = APIBlueprint("usage", __name__, url_prefix="/api/v1", abp_tags=[SERVER])


@routes.get("/usage", responses={200: RootModel[UsageView]})
def usage(query: UsageQuery) -> Response:
    """Return what teams use: versions, artifacts, stored bytes and unfinished builds, and their limits."""
    return render(container().usage.view(query.team))
