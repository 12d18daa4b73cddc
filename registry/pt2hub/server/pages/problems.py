"""Errors as pages: what happened, where, and what to do next. Programs get problem documents, as without pages."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import structlog
from flask import Response, current_app, request, url_for
from werkzeug.exceptions import HTTPException
from werkzeug.exceptions import NotFound as HTTPNotFound

from pt2hub.domain.names import MODEL_PATTERN
from pt2hub.errors import NotFound, Pt2hubError, UsageError
from pt2hub.server.api.context import PAGES
from pt2hub.server.api.problems import RETRY_SECONDS, problem, register, status_of
from pt2hub.server.pages import sessions
from pt2hub.server.pages.rendering import page

if TYPE_CHECKING:
    from flask import Flask

_FOR_PROGRAMS = re.compile(r"/(api|v2|metrics|healthz|readyz)(/|$)")
_MODEL = re.compile(MODEL_PATTERN)
_TITLES = {
    HTTPStatus.NOT_FOUND: "There is nothing here",
    HTTPStatus.REQUEST_URI_TOO_LONG: "This address is too long",
    HTTPStatus.FORBIDDEN: "This is not allowed",
    HTTPStatus.CONFLICT: "This cannot be done now",
    HTTPStatus.UNPROCESSABLE_ENTITY: "This cannot be read",
    HTTPStatus.INTERNAL_SERVER_ERROR: "Something failed here",
    HTTPStatus.SERVICE_UNAVAILABLE: "Not just now",
}
_LONGEST_SOUGHT = 100
_log = structlog.get_logger(__name__)

Way = tuple[str, str]
"""What people read, and where it leads."""


def install(app: Flask) -> None:
    """Makes errors under addresses of pages pages."""
    register(app, present)


def present(error: Pt2hubError, *, status: int | None = None) -> Response:
    """An error as its reader takes it: as a page, or under addresses for programs as a problem document.

    Args:
        error: What happened.
        status: Where it differs from that of its class.
    """
    if _FOR_PROGRAMS.match(request.path):
        return problem(error, status=status)
    if there := _without_slash():
        return Response(status=HTTPStatus.PERMANENT_REDIRECT, headers={"Location": there})
    shown, number = _unrouted() or (error, status or status_of(type(error)))
    try:
        _know_the_visitor()
        response = _page(shown, number)
    except Exception as exc:  # noqa: BLE001  # whatever it is, the reader is told what failed first
        _log.exception("an error's page failed", exc_info=exc)
        response = Response(f"{shown}\n", status=number, content_type="text/plain; charset=utf-8")
    if number == HTTPStatus.SERVICE_UNAVAILABLE:
        response.headers["Retry-After"] = str(RETRY_SECONDS)
    return response


def _without_slash() -> str | None:
    """The page that was meant by an address with a slash at its end."""
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
        ways=_ways(error),
        again=request.full_path.rstrip("?") if status >= HTTPStatus.INTERNAL_SERVER_ERROR else None,
    )


def _unrouted() -> tuple[Pt2hubError, int] | None:
    """What is wrong with an address that no page has, whatever else is wrong with the request."""
    wrong = request.routing_exception
    if wrong is None or wrong.code is None:
        return None
    if wrong.code == HTTPStatus.NOT_FOUND:
        return NotFound(
            "There is no page at this address",
            where=request.path[:_LONGEST_SOUGHT],
            hint="Was it cut off, or has it a letter too many? Things keep their addresses here.",
        ), wrong.code
    return UsageError(wrong.description, hint="Go back to the page that has the form."), wrong.code


def _know_the_visitor() -> None:
    """The database, which knows who signed in, may be what failed: the page shows nobody then."""
    try:
        sessions.visitor()
    except Pt2hubError:
        sessions.know_nobody()


def _ways(error: Pt2hubError) -> list[Way]:
    """Pages near what was sought, the likeliest first."""
    near = [way for name in error.context.get("near", ()) for way in _model(name)]
    if request.routing_exception or request.endpoint == "pages.team":
        return [*near, *_searches()]
    place: dict[str, Any] = request.view_args or {}
    owner = "/".join((place.get("team", ""), place.get("name", "")))
    if near or error.where == "model" or not _MODEL.fullmatch(owner):
        return near
    return [*_newest(error, place), *_model(owner)]


def _newest(error: Pt2hubError, place: dict[str, Any]) -> list[Way]:
    number = error.context.get("newest")
    if number is None:
        return []
    team, name = place["team"], place["name"]
    return [(f"{team}/{name}@{number}", url_for("pages.version", team=team, name=name, number=number))]


def _model(name: str) -> list[Way]:
    team, _, rest = name.partition("/")
    return [(name, url_for("pages.model", team=team, name=rest))] if _MODEL.fullmatch(name) else []


def _searches() -> list[Way]:
    sought = request.path.rstrip("/").rpartition("/")[2][:_LONGEST_SOUGHT]
    return [(f"Models like {sought}", url_for("pages.front", q=sought))] if sought else []
