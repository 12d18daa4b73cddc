"""Workers and what they are doing."""

from flask import Response
from flask_openapi3.blueprint import APIBlueprint

from pt2hub.server.api.context import container, render
from pt2hub.server.api.shapes import SERVER, Workers, WorkersQuery

routes = APIBlueprint("workers", __name__, url_prefix="/api/v1", abp_tags=[SERVER])


@routes.get("/workers", responses={200: Workers})
def workers(query: WorkersQuery) -> Response:
    """The workers that live, and what each is doing."""
    return render(container().workers.workers(gone=query.gone))
