"""What the server offers, and whether it is well."""

from flask import Response
from flask_openapi3.blueprint import APIBlueprint

from pt2hub.domain.digests import digest_bytes
from pt2hub.server.api.context import container, render
from pt2hub.server.api.shapes import OBJECT, SERVER, Targets
from pt2hub.server.blobs.keys import StorageKey

routes = APIBlueprint("meta", __name__, abp_tags=[SERVER])

_PROBE = StorageKey.blob(digest_bytes(b""))


@routes.get("/api/v1/targets", responses={200: Targets})
def targets() -> Response:
    """The targets that workers offer or offered."""
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
    """Whether the database and the storage answer too."""
    container().workers.targets()
    container().storage.size(_PROBE)
    return render({"status": "ready"})
