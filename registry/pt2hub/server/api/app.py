"""The application: routes, authorization, errors, one line of log per request."""

from __future__ import annotations

import re
import secrets
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import structlog
from flask import g, request
from flask_openapi3.models.info import Info
from flask_openapi3.openapi import OpenAPI
from werkzeug.exceptions import RequestURITooLarge

from pt2hub import __version__
from pt2hub.errors import InvalidInput
from pt2hub.server.api import (
    aliases,
    artifacts,
    blobs,
    comparing,
    describing,
    docs,
    measuring,
    meta,
    metrics,
    models,
    performance,
    policies,
    problems,
    reports,
    streams,
    uploads,
    versions,
    workers,
)
from pt2hub.server.api.context import PAGES, Context, attach, container, render, wrong_fields
from pt2hub.server.api.problems import LONGEST_ADDRESS
from pt2hub.server.api.shapes import Problem
from pt2hub.wire.compatibility import VERSION_HEADER, check_client

if TYPE_CHECKING:
    from flask import Flask, Response
    from pydantic import ValidationError

    from pt2hub.server.config import ServerConfig
    from pt2hub.server.container import Container

REQUEST_HEADER = "X-Request-Id"
_SLOW_SECONDS = 1.0
_MOST_LOGGED = 500
_REQUEST_ID = re.compile(r"[\w.:@=+/-]{1,128}", re.ASCII)
_CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_SCHEMES: Any = {"token": {"type": "http", "scheme": "bearer", "description": "From `pt2hub admin token`."}}
_MODULES = (
    models,
    versions,
    streams,
    aliases,
    artifacts,
    performance,
    comparing,
    measuring,
    policies,
    reports,
    blobs,
    uploads,
    workers,
    meta,
    metrics,
)
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
        validation_error_callback=_refuse_parameters,
        validation_error_status=422,
        validation_error_model=Problem,
        doc_ui=False,
        static_folder=None,
    )
    attach(app, Context(container, config))
    problems.register(app)
    app.before_request(_begin)
    app.before_request(_check_address)
    app.before_request(_check_client)
    app.before_request(_authorise)
    app.after_request(_redirect_within)
    app.after_request(_state_release)
    app.after_request(_state_request)
    app.after_request(_log_request)
    app.teardown_request(_end)
    for module in _MODULES:
        app.register_api(module.routes)
    app.add_url_rule("/api/v1/openapi.json", view_func=lambda: render(_description(app)), endpoint="openapi")
    app.add_url_rule("/api/v1/docs", view_func=lambda: docs.page(_description(app)), endpoint="docs")
    return app


def _description(app: OpenAPI) -> dict[str, Any]:
    return describing.complete(app.api_doc, error=_problem_response())


def _begin() -> None:
    """Names the request: as whoever sent it does, so that one name leads through the logs of all, or anew."""
    g.began = time.monotonic()
    given = request.headers.get(REQUEST_HEADER, "")
    g.request = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
    structlog.contextvars.bind_contextvars(request=g.request)


def _end(_error: BaseException | None) -> None:
    structlog.contextvars.unbind_contextvars("request")  # the thread goes on to others


def _check_address() -> None:
    """Refuses what proxies would not pass on either: a link that works here shall work everywhere."""
    size = len(request.environ.get("RAW_URI") or request.full_path)
    if size > LONGEST_ADDRESS:
        raise RequestURITooLarge(f"The address has {size} bytes.")


def _authorise() -> None:
    """Asks for a token wherever something could change, so that no new route can forget to.

    Whoever may look at an upload may also send its bytes: the view says how.
    """
    if request.blueprint == PAGES:  # signed in by a cookie, see pages.sessions
        return
    if request.method in _CHANGING or request.blueprint == uploads.routes.name:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        g.actor = container().access.verify(token.strip() if scheme.lower() == "bearer" else "")


def _check_client() -> None:
    check_client(request.headers.get("User-Agent", ""))


def _redirect_within(response: Response) -> Response:
    """Leaves scheme and host out of redirects to this server: a proxy may have changed both on the way here."""
    place = response.location or ""
    if place.startswith(request.host_url):
        response.location = "/" + place.removeprefix(request.host_url).lstrip("/")
    return response


def _state_release(response: Response) -> Response:
    response.headers[VERSION_HEADER] = __version__
    # What people upload is served beside pages that know who signed in: no browser shall guess what it might be.
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


def _state_request(response: Response) -> Response:
    response.headers[REQUEST_HEADER] = g.request
    return response


def _log_request(response: Response) -> Response:
    """Logs a request; those that people poll with only for who asks for every detail."""
    seconds = time.monotonic() - g.began
    read = request.method in {"GET", "HEAD"} and response.status_code < HTTPStatus.BAD_REQUEST
    log = _log.debug if read and seconds < _SLOW_SECONDS else _log.info
    log(
        "request",
        method=request.method,
        path=request.path[:_MOST_LOGGED],
        status=response.status_code,
        ms=round(seconds * 1000, 1),
        **({"actor": g.actor.name} if "actor" in g else {}),
    )
    return response


def _refuse_parameters(error: ValidationError) -> Response:
    raise InvalidInput(
        "The address has wrong parameters.",
        where="address",
        hint="GET /api/v1/openapi.json describes them.",
        details=wrong_fields(error),
    )


def _problem_response() -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": "An error", "content": {problems.PROBLEM_TYPE: {"schema": schema}}}
