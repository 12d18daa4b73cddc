"""Targets, the spec's JSON Schema, the caller's identity, and health checks."""

from flask import Response
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel

from pt2hub.domain.tokens import Scope
from pt2hub.server.api.context import caller, container, render
from pt2hub.server.api.request_shapes import OBJECT, SERVER, TOKEN, ReadinessQuery
from pt2hub.wire.identities import Identity
from pt2hub.wire.responses import TargetList

routes = APIBlueprint("meta", __name__, abp_tags=[SERVER])


@routes.get("/api/v1/targets", responses={200: RootModel[TargetList]})
def targets() -> Response:
    """Return the targets that workers offer or offered, and their queues."""
    return render(TargetList(tuple(container().workers.targets())))


@routes.get("/api/v1/spec.schema.json", responses={200: {"content": OBJECT}})
def spec_schema() -> Response:
    """Return the JSON Schema of specs."""
    return render(container().publish.spec_schema())


@routes.get("/api/v1/whoami", responses={200: RootModel[Identity]}, security=TOKEN)
def whoami() -> Response:
    """Return whose token the request has."""
    by = caller()
    scopes = tuple(Scope) if by.admin else tuple(sorted(by.scopes))
    return render(Identity(by.name, by.admin, scopes, by.patterns, by.expires_at, by.id))


@routes.get("/healthz", responses={200: {"content": OBJECT}})
def healthz() -> Response:
    """Liveness check: return whether the process responds."""
    return render({"status": "alive"})


@routes.get("/readyz", responses={200: {"content": OBJECT}})
def readyz(query: ReadinessQuery) -> Response:
    """Readiness check: return whether database and storage respond and accept writes, and the schema is current."""
    container().health.check(writing=not query.reads_only)
    return render({"status": "ready"})
