"""Workers and their current builds."""

from flask import Response
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel

from pt2hub.server.api.context import container, render
from pt2hub.server.api.request_shapes import SERVER, WorkersQuery
from pt2hub.wire.workers import WorkerList

routes = APIBlueprint("workers", __name__, url_prefix="/api/v1", abp_tags=[SERVER])


@routes.get("/workers", responses={200: RootModel[WorkerList]})
def workers(query: WorkersQuery) -> Response:
    """Return live workers and their current builds."""
    return render(container().workers.workers(gone=query.gone))
