"""Labels as pages show them, and the search for versions by them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from flask import request, url_for

from pt2hub.domain.labels import label_link
from pt2hub.errors import InvalidInput, UsageError
from pt2hub.server.api.context import container
from pt2hub.server.api.problems import status_of
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.numbers import query_number
from pt2hub.server.pages.templates import page
from pt2hub.wire.responses import FoundVersions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flask import Response

_PER_PAGE = 50
_MAX_QUERY_CHARS = 2000
_MAX_CURSOR = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ShownLabel:
    """A label on a page.

    Attributes:
        link: Where the value leads to; None for plain text.
        others: Address of the search for versions with the same label.
    """

    key: str
    value: str
    link: str | None
    others: str


def show_labels(labels: Mapping[str, str]) -> list[ShownLabel]:
    """Return labels for a page, by key."""
    return [
        ShownLabel(key, value, label_link(key, labels), url_for("pages.versions", q=_condition(key, value)))
        for key, value in sorted(labels.items())
    ]


@routes.get("/versions")
def versions() -> Response:
    """List the versions that meet the typed conditions, newest first."""
    given = request.args.getlist("where")  # as the API calls them
    typed = (shlex.join(given) or request.args.get("q", "")).strip()[:_MAX_QUERY_CHARS]
    after = query_number("after", 1, _MAX_CURSOR, what="cursor", hint="Use the link to the next page.")
    found, error = FoundVersions(()), None
    try:
        found = container().catalog.search(_conditions(typed), after=after, limit=_PER_PAGE)
    except UsageError as caught:
        error = caught
    return page(
        "versions.html",
        section="versions",
        status=status_of(type(error)) if error else HTTPStatus.OK,
        error=error,
        typed=typed,
        found=found,
        after=after,
    )


def _conditions(typed: str) -> list[str]:
    """Return the conditions in a line of text, separated by spaces; quotes keep spaces.

    Raises:
        InvalidInput: A quote is not closed.
    """
    try:
        return shlex.split(typed)
    except ValueError as exc:
        raise InvalidInput(
            "Invalid conditions: a quote is not closed", where="q", hint='For example: owner="search team"'
        ) from exc


def _condition(key: str, value: str) -> str:
    return f"{key}={shlex.quote(value)}"
