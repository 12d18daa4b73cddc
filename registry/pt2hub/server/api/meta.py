"""What the server offers, and whether it is well."""

from flask import Response
from flask_openapi3.blueprint import APIBlueprint

from pt2hub.server.api.context import container, render
from pt2hub.server.api.shapes import OBJECT, SERVER, Targets

routes = APIBlueprint("meta", __name__, abp_tags=[SERVER])


@routes.get("/api/v1/targets", responses={200: Targets})
def targets() -> Response:
    """The targets that workers offer or offered, and their queues."""
    return render({"targets": container().workers.targets()})


@routes.get("/api/v1/spec.schema.json", responses={200: {"content": OBJECT}})
def spec_schema() -> Response:
    """JSON Schema of a spec."""
    return render(container().publish.spec_schema())


@routes.get("/healthz", responses={200: {"content": OBJECT}})
def healthz() -> Response:
    """Whether the process answers."""
    return render({"status": "alive"})


@routes.get("/readyz", responses={200: {"content": OBJECT}})
def readyz() -> Response:
    """Whether the database and the storage answer too, and the schema is the one that this release needs."""
    container().health.check()
    return render({"status": "ready"})
