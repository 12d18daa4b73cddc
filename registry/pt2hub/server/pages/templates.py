"""Rendering of templates, and the headers of every page."""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from flask import Response, current_app, request, url_for
from jinja2 import DictLoader, Environment, StrictUndefined

from pt2hub.server.api.problems import MAX_URL_BYTES
from pt2hub.server.api.visitors import visitor
from pt2hub.server.pages import paths, template_filters
from pt2hub.server.pages.navigation import NAVIGATION
from pt2hub.version import __version__

if TYPE_CHECKING:
    from pt2hub.domain.tokens import Actor
    from pt2hub.server.pages.assets import Assets
    from pt2hub.server.pages.navigation import NavigationItem

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
"""No content from other hosts, no inline scripts or styles."""
_MAX_RETURN_URL = MAX_URL_BYTES // 4
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}


@cache
def environment() -> Environment:
    """Return the template environment; undefined values are errors.

    Templates are read once, as styles and scripts are: an upgrade replaces them on disk while an older process serves.
    """
    made = Environment(
        loader=DictLoader({path.name: path.read_text("utf-8") for path in paths.templates().glob("*.html")}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(template_filters.FILTERS)
    made.globals.update(url_for=url_for, version=__version__)
    return made


def page(
    template: str, *, section: str | None = None, status: int = HTTPStatus.OK, **values: Any
) -> Response:
    """Return a page.

    Args:
        template: Its file under `web/templates`.
        section: The name of its navigation item.
        values: The template's values. It also gets `visitor` (the signed-in user or None), `navigation`, `section`,
            `asset` (the URL of a built file) and `address` (the URL of this page).
    """
    html = environment().get_template(template).render(**_common(section), **values)
    return finish(Response(html, status=status, content_type="text/html; charset=utf-8"))


def fragment(template: str, **values: Any) -> Response:
    """Return a part of a page, for scripts."""
    html = environment().get_template(template).render(**_common(None), **values)
    return finish(Response(html, content_type="text/html; charset=utf-8"))


def finish(response: Response) -> Response:
    """Add the headers of every page."""
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    response.vary.add("Cookie")
    return response


def _address() -> str:
    """Return this page's URL as a return URL; without the query if that would make it too long."""
    whole = request.full_path.rstrip("?")
    return whole if len(whole.encode()) <= _MAX_RETURN_URL else request.path[:_MAX_RETURN_URL]


def _is_shown(item: NavigationItem, reader: Actor | None) -> bool:
    if reader is None:
        return not item.signed_in
    return reader.admin or not item.admin


def _common(section: str | None) -> dict[str, Any]:
    assets: Assets = current_app.extensions[ASSETS]
    reader = visitor()
    return {
        "visitor": reader,
        "navigation": [item for item in NAVIGATION if _is_shown(item, reader)],
        "section": section,
        "asset": assets.url,
        "address": _address(),
    }
