"""Finds pages as readers do: from the front page on, link by link, signed in."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urldefrag, urlsplit

from flask import Flask
from werkzeug.exceptions import HTTPException
from werkzeug.routing import RequestRedirect

from pt2hub.server.api.context import PAGES
from pt2hub.server.pages.installation import install
from support.pages import Page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from werkzeug.routing import Map

    from support.site import Site

_OF_A_SORT = 4
"""Pages of one kind, with one set of parameters, that are read."""
_ARTIFACTS = 40
"""Only some artifacts have records of the compiler's, which lead to pages of their own."""


@dataclass(frozen=True)
class Visit:
    """A page that was read.

    Attributes:
        address: Its path and query.
        kind: Its endpoint, without the blueprint's name.
        status: As answered.
        html: What was answered.
        origin: The page that led there.
    """

    address: str
    kind: str
    status: int
    html: str
    origin: str


@cache
def _map() -> Map:
    app = Flask(__name__, static_folder=None)
    install(app)
    return app.url_map


def kinds() -> list[str]:
    """Endpoints of all pages that can be opened."""
    prefix = f"{PAGES}."
    return sorted(
        rule.endpoint.removeprefix(prefix)
        for rule in _map().iter_rules()
        if rule.endpoint.startswith(prefix) and "GET" in (rule.methods or ())
    )


def rules() -> list[str]:
    """Their addresses, with placeholders."""
    return [rule.rule for rule in _map().iter_rules() if rule.endpoint.removeprefix(f"{PAGES}.") in kinds()]


def kind_of(address: str) -> str | None:
    """The kind of page at an address, None for what is no page."""
    try:
        endpoint, _ = _map().bind("site").match(urlsplit(address).path)
    except (HTTPException, RequestRedirect):
        return None
    blueprint, _, name = str(endpoint).partition(".")
    return name if blueprint == PAGES else None


def crawl(site: Site, start: str = "/") -> Iterator[Visit]:
    """Reads pages of every sort that links lead to, a few of each.

    Args:
        site: Where.
        start: The first page.
    """
    cookie = site.cookie()
    waiting: deque[tuple[str, str]] = deque([(start, "")])
    known = {start}
    read: dict[tuple[str, ...], int] = defaultdict(int)
    while waiting:
        address, origin = waiting.popleft()
        kind = kind_of(address)
        sort = (kind or "", *sorted(parse_qs(urlsplit(address).query)))
        if kind is None or read[sort] >= (_ARTIFACTS if kind == "artifact" else _OF_A_SORT):
            continue
        read[sort] += 1
        status, html = site.get(address, cookie)
        yield Visit(address, kind, status, html, origin)
        links = {urldefrag(link).url or address: None for link in Page(html).links}
        fresh = [link for link in links if link.startswith("/") and link not in known]
        known.update(fresh)
        waiting.extend((link, address) for link in fresh)
