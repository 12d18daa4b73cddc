"""The Flask application: routes, authorization, errors and request logging."""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import structlog
from flask import g, request
from flask_openapi3.models.info import Info
from flask_openapi3.openapi import OpenAPI
from pydantic import RootModel
from werkzeug.exceptions import RequestURITooLarge

from pt2hub.errors import InvalidInput
from pt2hub.server.api import docs, openapi, permissions, problems, streams, waits
from pt2hub.server.api.context import PAGES, Context, attach, container, render, wrong_fields
from pt2hub.server.api.problems import MAX_URL_BYTES
from pt2hub.server.api.resources import (
    aliases,
    artifacts,
    audit,
    blobs,
    comparisons,
    devices,
    files,
    labels,
    lineage,
    measuring_jobs,
    meta,
    metrics,
    models,
    oidc,
    performance,
    policies,
    reports,
    retention,
    roles,
    search,
    tokens,
    uploads,
    usage,
    versions,
    webhooks,
    workers,
)
from pt2hub.server.api.url_rules import LazyRule
from pt2hub.server.api.visitors import visitor
from pt2hub.version import __version__
from pt2hub.wire.compatibility import VERSION_HEADER, check_client
from pt2hub.wire.problems import Problem

if TYPE_CHECKING:
    from flask import Flask, Response
    from pydantic import ValidationError

    from pt2hub.domain.tokens import Actor
    from pt2hub.server.config import ServerConfig
    from pt2hub.server.container import Container

REQUEST_HEADER = "X-Request-Id"
DEFAULT_BODY_BYTES = 1 << 20
"""Maximum body of a request, unless its route sets another one."""
_SLOW_SECONDS = 1.0
_MAX_LOGGED_CHARS = 500
_REQUEST_ID = re.compile(r"[\w.:@=+/-]{1,128}", re.ASCII)
_SCHEMES: Any = {"token": {"type": "http", "scheme": "bearer", "description": "From `pt2hub admin token`."}}
_MODULES = (
    models,
    versions,
    files,
    streams,
    aliases,
    artifacts,
    performance,
    comparisons,
    labels,
    search,
    lineage,
    measuring_jobs,
    policies,
    reports,
    retention,
    blobs,
    uploads,
    usage,
    workers,
    meta,
    metrics,
    audit,
    oidc,
    devices,
    roles,
    tokens,
    webhooks,
)
_log = structlog.get_logger(__name__)


def create_app(container: Container, config: ServerConfig) -> Flask:
    """Create the application.

    Args:
        container: The services, closed by the caller.
        config: The server's settings.
    """
    app = OpenAPI(
        "pt2hub",
        info=Info(
            title="pt2hub",
            version=__version__,
            description="The registry that compiles. Texts have no NUL characters.",
        ),
        security_schemes=_SCHEMES,
        validation_error_callback=_refuse_parameters,
        validation_error_status=422,
        validation_error_model=RootModel[Problem],
        doc_ui=False,
        static_folder=None,
    )
    app.url_rule_class = LazyRule
    app.config["MAX_CONTENT_LENGTH"] = DEFAULT_BODY_BYTES
    attach(app, Context(container, config))
    if config.provider:
        container.believe(config.provider.issuer)
    problems.register(app, explain=lambda error: container.damage.explain(error))  # noqa: PLW0108  # there is none where only the description is made
    app.before_request(_begin)
    app.before_request(_check_address)
    app.before_request(_check_client)
    app.before_request(_authorise)
    app.after_request(_redirect_within)
    app.after_request(_state_release)
    app.after_request(_state_request)
    app.after_request(_keep_private)
    app.after_request(_log_request)
    app.teardown_request(_end)
    for module in _MODULES:
        app.register_api(module.routes)
    app.add_url_rule("/api/v1/openapi.json", view_func=lambda: render(_description(app)), endpoint="openapi")
    app.add_url_rule("/api/v1/docs", view_func=lambda: docs.page(_description(app)), endpoint="docs")
    return app


def _description(app: OpenAPI) -> dict[str, Any]:
    return openapi.complete(app.api_doc, error=_problem_response())


def _begin() -> None:
    """Set the request id: the sender's, so that logs of several systems can be joined, or a new one."""
    permissions.begin()
    g.began = time.monotonic()
    given = request.headers.get(REQUEST_HEADER, "")
    g.request = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
    structlog.contextvars.bind_contextvars(request=g.request)


def _end(_error: BaseException | None) -> None:
    structlog.contextvars.unbind_contextvars("request")  # the thread goes on to others
    permissions.end()


def _check_address() -> None:
    """Reject URLs that proxies would not forward: a link that works here must work everywhere."""
    size = len(request.environ.get("RAW_URI") or request.full_path)
    if size > MAX_URL_BYTES:
        raise RequestURITooLarge(f"The URL is too long ({size} bytes, at most {MAX_URL_BYTES}).")


def _authorise() -> None:
    """Require what `permissions.RULES` says of the route; one that it does not name is refused."""
    if request.blueprint == PAGES:  # signed in by a cookie, see pages.access.login
        return
    if permissions.needs_token():
        g.actor = replace(_sender(), request=g.request)
    permissions.authorise()


def _sender() -> Actor:
    """Return whose token or, where it suffices, whose session the request carries.

    Raises:
        Unauthorized: Neither is valid.
        RateLimited: There were too many requests with the token.
    """
    header = request.headers.get("Authorization", "")
    with_cookie = permissions.may_read_with_cookie()
    if not header and with_cookie and (found := visitor()):
        return found
    scheme, _, token = header.partition(" ")
    given = token.strip() if scheme.lower() == "bearer" else ""
    sender = container().access.verify(given, recently=with_cookie)
    if not waits.is_asked_anew():
        container().rate_limits.count_request(given)
    return sender


def _check_client() -> None:
    check_client(request.headers.get("User-Agent", ""))


def _redirect_within(response: Response) -> Response:
    """Make redirects to this server relative, since a proxy may have changed scheme and host."""
    place = response.location or ""
    if place.startswith(request.host_url):
        response.location = "/" + place.removeprefix(request.host_url).lstrip("/")
    return response


def _state_release(response: Response) -> Response:
    response.headers[VERSION_HEADER] = __version__
    # Uploaded content is served from the same origin as pages with a login: browsers must not guess its type.
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


def _keep_private(response: Response) -> Response:
    """Keep what needs a token out of caches that readers share, such as those of proxies."""
    if permissions.needs_token():
        if not response.cache_control.no_store:
            response.cache_control.private = True
        response.vary.update(("Authorization", "Cookie"))
    return response


def _state_request(response: Response) -> Response:
    response.headers[REQUEST_HEADER] = g.request
    return response


def _log_request(response: Response) -> Response:
    """Log a request; polling requests only at level debug."""
    seconds = time.monotonic() - g.began
    read = request.method in {"GET", "HEAD"} and response.status_code < HTTPStatus.BAD_REQUEST
    log = _log.debug if read and seconds < _SLOW_SECONDS else _log.info
    log(
        "request",
        method=request.method,
        path=request.path[:_MAX_LOGGED_CHARS],
        status=response.status_code,
        ms=round(seconds * 1000, 1),
        **({"actor": g.actor.name} if "actor" in g else {}),
    )
    return response


def _refuse_parameters(error: ValidationError) -> Response:
    raise InvalidInput(
        "Invalid URL parameters.",
        where="address",
        hint="GET /api/v1/openapi.json describes them.",
        details=wrong_fields(error),
    )


def _problem_response() -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": "An error", "content": {problems.PROBLEM_TYPE: {"schema": schema}}}
