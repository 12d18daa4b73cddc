"""The application: routes, authorization, errors, one line of log per request."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import structlog
from flask import g, request
from flask_openapi3.models.info import Info
from flask_openapi3.openapi import OpenAPI

from pt2hub import __version__
from pt2hub.errors import Detail, InvalidInput
from pt2hub.server.api import artifacts, blobs, meta, problems, versions
from pt2hub.server.api.context import Context, attach, container, render
from pt2hub.server.api.shapes import Problem

if TYPE_CHECKING:
    from flask import Flask, Response
    from pydantic import ValidationError

    from pt2hub.server.config import ServerConfig
    from pt2hub.server.container import Container

_CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_SCHEMES: Any = {"token": {"type": "http", "scheme": "bearer", "description": "From `pt2hub admin token`."}}
_log = structlog.get_logger(__name__)


def create_app(container: Container, config: ServerConfig) -> Flask:
    """The application.

    Args:
        container: The services it serves; the caller closes it.
        config: The server's settings.
    """
    app = OpenAPI(
        "pt2hub",
        info=Info(title="pt2hub", version=__version__, description="The registry that compiles."),
        security_schemes=_SCHEMES,
        responses={"default": _problem_response()},
        validation_error_callback=_refuse_parameters,
        validation_error_status=422,
        validation_error_model=Problem,
        doc_ui=False,
        static_folder=None,
    )
    attach(app, Context(container, config))
    problems.register(app)
    app.before_request(_begin)
    app.before_request(_authorise)
    app.after_request(_log_request)
    for module in (versions, artifacts, blobs, meta):
        app.register_api(module.routes)
    app.add_url_rule("/api/v1/openapi.json", view_func=lambda: render(app.api_doc), endpoint="openapi")
    return app


def _begin() -> None:
    g.began = time.monotonic()


def _authorise() -> None:
    """Asks for a token wherever something could change, so that no new route can forget to."""
    if request.method in _CHANGING:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        container().access.verify(token.strip() if scheme.lower() == "bearer" else "")


def _log_request(response: Response) -> Response:
    if request.path not in {"/healthz", "/readyz"}:
        _log.info(
            "request",
            method=request.method,
            path=request.path,
            status=response.status_code,
            ms=round((time.monotonic() - g.began) * 1000, 1),
        )
    return response


def _refuse_parameters(error: ValidationError) -> Response:
    details = tuple(
        Detail(".".join(map(str, item["loc"])), item["msg"], given=str(item["input"])[:80])
        for item in error.errors()
    )
    raise InvalidInput(
        "The address has wrong parameters.",
        where="address",
        hint="GET /api/v1/openapi.json describes them.",
        details=details,
    )


def _problem_response() -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": "An error", "content": {problems.PROBLEM_TYPE: {"schema": schema}}}
