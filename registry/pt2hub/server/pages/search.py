"""Page of the search over everything."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING

from flask import redirect, request, url_for

from pt2hub.domain.version_filters import parse_conditions
from pt2hub.errors import UsageError
from pt2hub.rendering.quantities import format_count
from pt2hub.server.api.context import container
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.publishing.version_search import split_conditions
from pt2hub.server.pages.templates import page
from pt2hub.server.services.publishing.search import MAX_SEARCH_CHARS, OWNS_MODELS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flask import Response
    from werkzeug.wrappers import Response as WerkzeugResponse

    from pt2hub.wire.search import SearchHit

_PER_KIND = 25
_NOUNS = {
    "model": "model",
    "version": "version",
    "build": "build",
    "target": "target",
    "publisher": "publisher",
    "owner": "owner",
}
_BY_ID = ("version", "build")
"""Kinds whose digests and ids are shortened: a beginning that only one has is meant as a whole one."""


@routes.get("/search")
def search() -> Response | WerkzeugResponse:
    """Search for models, versions, builds, targets and people; a single exact hit is opened at once.

    A text that nothing has in its name, and whose words are all valid `KEY=VALUE`, is conditions for versions.
    """
    typed = "".join(letter for letter in request.args.get("q", "") if letter.isprintable()).strip()
    hits = container().search.search(typed, limit=_PER_KIND).hits
    exact = [hit for hit in hits if hit.exact]
    if len(exact) == 1:
        return redirect(hit_href(exact[0]))
    if len(hits) == 1 and hits[0].kind in _BY_ID:
        return redirect(hit_href(hits[0]))
    if not hits and (deleted := _deleted_href(typed)):
        return redirect(deleted)
    if not hits and _are_conditions(typed):
        return redirect(url_for("pages.versions", q=typed))
    return page(
        "search.html",
        section=None,
        query=typed[:MAX_SEARCH_CHARS],
        answer=compose_search_answer(hits, typed[:MAX_SEARCH_CHARS]),
        groups=[
            (f"{_NOUNS[kind].capitalize()}s", [(hit, hit_href(hit)) for hit in found])
            for kind, found in groupby(hits, key=lambda hit: hit.kind)
        ],
        more_models=url_for("pages.front", q=typed[:MAX_SEARCH_CHARS])
        if sum(hit.kind == "model" for hit in hits) == _PER_KIND
        else None,
    )


def _deleted_href(typed: str) -> str | None:
    """Return the address of something deleted that a text names whole: its page says who deleted it and why."""
    if not container().search.is_deleted(typed):
        return None
    model, _, number = typed.partition("@")
    team, _, name = model.partition("/")
    if name:
        return url_for("pages.version", team=team, name=name, number=int(number))
    if ":" in typed:
        return url_for("pages.artifact", digest=typed)
    return url_for("pages.build", build=typed)


def _are_conditions(typed: str) -> bool:
    """Return whether a text is valid conditions: an address with `?a=b` is none."""
    try:
        words = split_conditions(typed)
        parse_conditions(words, now=datetime.now(UTC))
    except UsageError:
        return False
    return bool(words) and all("=" in word for word in words)


def compose_search_answer(hits: Sequence[SearchHit], typed: str) -> str:
    """Return how much was found: `3 models and 1 target match “bert”`."""
    if not typed:
        return "Type a part of a name, or at least six characters of a digest or of a build's id."
    if not hits:
        return f"Nothing matches “{typed}”."
    counts = [_count(kind, len(list(found))) for kind, found in groupby(hits, key=lambda hit: hit.kind)]
    listed = " and ".join(filter(None, (", ".join(counts[:-1]), counts[-1])))
    return f"{listed} {'matches' if len(hits) == 1 else 'match'} “{typed}”."


def _count(kind: str, number: int) -> str:
    more = "the first " if number == _PER_KIND else ""
    return f"{more}{format_count(number, _NOUNS[kind])}"


def hit_href(hit: SearchHit) -> str:
    """Return the address of what was found."""
    team, _, name = (hit.model or "").partition("/")
    if hit.kind == "model":
        return url_for("pages.model", team=team, name=name)
    if hit.kind == "version":
        return url_for("pages.version", team=team, name=name, number=hit.number)
    if hit.kind == "build":
        return url_for("pages.build", build=hit.name)
    if hit.kind == "target":
        return url_for("pages.targets", target=hit.name)
    if hit.kind == "owner":
        shown = "pages.front" if hit.detail == OWNS_MODELS else "pages.versions"
        return url_for(shown, label=f"owner={hit.name}")
    return url_for("pages.versions", publisher=hit.name)
