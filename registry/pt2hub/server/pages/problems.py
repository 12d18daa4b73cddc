"""Error pages. API requests get problem documents instead."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import structlog
from flask import Response, current_app, request, url_for
from werkzeug.exceptions import HTTPException
from werkzeug.exceptions import NotFound as HTTPNotFound

from pt2hub.domain.names import MODEL_PATTERN
from pt2hub.errors import Deleted, NotFound, Pt2hubError, UsageError
from pt2hub.server.api.context import PAGES, container
from pt2hub.server.api.problems import RETRY_SECONDS, problem, register, status_of
from pt2hub.server.api.visitors import visitor
from pt2hub.server.pages import sessions
from pt2hub.server.pages.templates import page

if TYPE_CHECKING:
    from flask import Flask

_FOR_PROGRAMS = re.compile(r"/(api|v2|metrics|healthz|readyz)(/|$)")
_MODEL = re.compile(MODEL_PATTERN)
_TITLES = {
    HTTPStatus.NOT_FOUND: "Not found",
    HTTPStatus.REQUEST_URI_TOO_LONG: "URL too long",
    HTTPStatus.FORBIDDEN: "Permission denied",
    HTTPStatus.CONFLICT: "Conflict with the current state",
    HTTPStatus.TOO_MANY_REQUESTS: "Limit reached",
    HTTPStatus.UNPROCESSABLE_ENTITY: "Invalid input",
    HTTPStatus.INTERNAL_SERVER_ERROR: "Something went wrong",
    HTTPStatus.SERVICE_UNAVAILABLE: "Temporarily unavailable",
}
_MAX_SOUGHT = 100
_log = structlog.get_logger(__name__)

Link = tuple[str, str]
"""A label and its URL."""


def install(app: Flask) -> None:
    """Render errors of pages as pages."""
    register(app, present, _explain)


def _explain(error: Pt2hubError) -> Pt2hubError:
    return container().damage.explain(error)


def present(error: Pt2hubError, *, status: int | None = None) -> Response:
    """Return an error as a page, or as a problem document for API paths.

    Args:
        status: The status, if it is not that of the error's class.
    """
    if _FOR_PROGRAMS.match(request.path):
        return problem(error, status=status)
    if there := _path_without_slash():
        return Response(status=HTTPStatus.PERMANENT_REDIRECT, headers={"Location": there})
    shown, number = _routing_error() or (error, status or status_of(type(error)))
    try:
        _identify_visitor()
        response = _page(shown, number)
    except Exception as exc:  # noqa: BLE001  # the original error is shown whatever fails here
        _log.exception("rendering an error page failed", exc_info=exc)
        response = Response(f"{shown}\n", status=number, content_type="text/plain; charset=utf-8")
    if number == HTTPStatus.SERVICE_UNAVAILABLE:
        response.headers["Retry-After"] = str(RETRY_SECONDS)
    return response


def _path_without_slash() -> str | None:
    """Return the page's URL if the path only has a trailing slash too many."""
    path, site = request.path.rstrip("/"), current_app.create_url_adapter(request)
    if site is None or path == request.path or not isinstance(request.routing_exception, HTTPNotFound):
        return None
    try:
        endpoint, values = site.match(path, request.method)
    except HTTPException:
        return None
    query = request.query_string.decode("latin-1")
    is_page = endpoint.startswith(f"{PAGES}.")
    return url_for(endpoint, **values) + (f"?{query}" if query else "") if is_page else None


def _page(error: Pt2hubError, status: int) -> Response:
    phrase = HTTPStatus(status).phrase
    return page(
        "error.html",
        status=status,
        title=_TITLES.get(HTTPStatus(status), phrase),
        status_line=f"{status} {phrase}",
        error=error,
        links=_links(error),
        retry=request.full_path.rstrip("?") if status >= HTTPStatus.INTERNAL_SERVER_ERROR else None,
    )


def _routing_error() -> tuple[Pt2hubError, int] | None:
    """Return the routing error of a URL without a page; it takes precedence over other errors."""
    wrong = request.routing_exception
    if wrong is None or wrong.code is None:
        return None
    if wrong.code == HTTPStatus.NOT_FOUND:
        return NotFound(
            "Page not found",
            where=request.path[:_MAX_SOUGHT],
            hint="Check the URL for a missing or extra character.",
        ), wrong.code
    return UsageError(wrong.description, hint="Go back to the page with the form."), wrong.code


def _identify_visitor() -> None:
    """Identify the visitor; continue without one if the database fails."""
    try:
        visitor()
    except Pt2hubError:
        sessions.forget_visitor()


def _links(error: Pt2hubError) -> list[Link]:
    """Return links to pages that may have been meant, most likely first."""
    suggestions = [link for name in error.context.get("suggestions", ()) for link in _model_link(name)]
    if isinstance(error, Deleted) and error.where in (
        "artifact",
        "build",
    ):  # the address does not name the model
        return _model_link(error.context.get("model", ""))
    if request.routing_exception or request.endpoint == "pages.team":
        return [*suggestions, *_search_link()]
    arguments: dict[str, Any] = request.view_args or {}
    owner = "/".join((arguments.get("team", ""), arguments.get("name", "")))
    if suggestions or error.where == "model" or not _MODEL.fullmatch(owner):
        return suggestions
    return [*_newest_version_link(error, arguments), *_model_link(owner)]


def _newest_version_link(error: Pt2hubError, arguments: dict[str, Any]) -> list[Link]:
    number = error.context.get("newest")
    if number is None:
        return []
    team, name = arguments["team"], arguments["name"]
    return [(f"{team}/{name}@{number}", url_for("pages.version", team=team, name=name, number=number))]


def _model_link(name: str) -> list[Link]:
    team, _, rest = name.partition("/")
    return [(name, url_for("pages.model", team=team, name=rest))] if _MODEL.fullmatch(name) else []


def _search_link() -> list[Link]:
    sought = request.path.rstrip("/").rpartition("/")[2][:_MAX_SOUGHT]
    return [(f"Search models for {sought}", url_for("pages.front", q=sought))] if sought else []
