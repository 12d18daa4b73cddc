"""From values to pages: the templates' environment, and the headers of every page."""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from flask import Response, current_app, request, url_for
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pt2hub import __version__
from pt2hub.server.api.problems import LONGEST_ADDRESS
from pt2hub.server.pages import filters, folders, sessions
from pt2hub.server.pages.rooms import ROOMS

if TYPE_CHECKING:
    from pt2hub.server.pages.assets import Assets

ASSETS = "pt2hub.assets"
_SOURCES = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
)
POLICY = "; ".join(_SOURCES)
"""Nothing from other hosts, no script or style inside a page."""
_LONGEST_WAY_BACK = LONGEST_ADDRESS // 4
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}


@cache
def environment() -> Environment:
    """The templates' environment; a value that a template lacks is an error, never an empty place."""
    made = Environment(
        loader=FileSystemLoader(folders.templates()),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(filters.FILTERS)
    made.globals.update(url_for=url_for, version=__version__)
    return made


def page(template: str, *, room: str | None = None, status: int = HTTPStatus.OK, **values: Any) -> Response:  # noqa: ANN401  # what templates show
    """A page.

    Args:
        template: Its file under `web/templates`.
        room: The room of the navigation that it belongs to.
        status: Of the response.
        values: What the template shows. It also sees `visitor` (who signed in, or None), `csrf`, `rooms`, `room`,
            `asset` (the address of a built file) and `address` (of this page, to come back to).
    """
    html = environment().get_template(template).render(**_common(room), **values)
    return finish(Response(html, status=status, content_type="text/html; charset=utf-8"))


def fragment(template: str, **values: Any) -> Response:  # noqa: ANN401  # what templates show
    """A part of a page, for scripts that put it into one."""
    html = environment().get_template(template).render(**_common(None), **values)
    return finish(Response(html, content_type="text/html; charset=utf-8"))


def finish(response: Response) -> Response:
    """Adds the headers of every page."""
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    response.vary.add("Cookie")
    return response


def _address() -> str:
    """Where to come back to; of what would make another address too long, percent-encoded in it, only the page."""
    whole = request.full_path.rstrip("?")
    return whole if len(whole.encode()) <= _LONGEST_WAY_BACK else request.path[:_LONGEST_WAY_BACK]


def _common(room: str | None) -> dict[str, Any]:
    assets: Assets = current_app.extensions[ASSETS]
    visitor = sessions.visitor()
    return {
        "visitor": visitor,
        "csrf": sessions.csrf() if visitor else "",
        "rooms": [item for item in ROOMS if visitor or not item.signed_in],
        "room": room,
        "asset": assets.address,
        "address": _address(),
    }
