"""Page of flagged changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import request

from pt2hub.errors import UsageError
from pt2hub.rendering.comparisons import TWO_FIGURES, change, found_as
from pt2hub.server.api.context import container
from pt2hub.server.api.problems import status_of
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.templates import page
from pt2hub.wire.performance import EventPage

if TYPE_CHECKING:
    from flask import Response

_LIMIT = 50
_FILTERS = ("model", "target", "outcome")


@routes.get("/changes")
def changes() -> Response:
    """List flagged changes, newest first, with a filter form."""
    chosen = {name: request.args.get(name, "").strip() or None for name in _FILTERS}
    after = request.args.get("after")
    error: UsageError | None = None
    found = EventPage(())
    try:
        found = container().comparisons.events(
            model=chosen["model"],
            target=chosen["target"],
            outcome=chosen["outcome"],
            after=after,
            limit=_LIMIT,
        )
    except UsageError as caught:
        error = caught
    return page(
        "changes.html",
        section="changes",
        status=status_of(type(error)) if error else 200,
        error=error,
        found=found,
        chosen=chosen,
        targets=[target.name for target in container().workers.targets()],
        first=after is None,
        found_as=found_as,
        two_figures=TWO_FIGURES,
        change=change,
    )
