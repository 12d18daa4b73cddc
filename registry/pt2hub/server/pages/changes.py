"""Flagged changes, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import request

from pt2hub.errors import UsageError
from pt2hub.rendering.comparing import TWO_FIGURES, change, found_as
from pt2hub.server.api.context import container
from pt2hub.server.api.problems import status_of
from pt2hub.server.pages.rendering import page
from pt2hub.server.pages.routes import routes
from pt2hub.wire.performance import EventPage

if TYPE_CHECKING:
    from flask import Response

_LIMIT = 50
_FILTERS = ("model", "target", "verdict")


@routes.get("/changes")
def changes() -> Response:
    """Flagged changes, and a form that chooses among them; a wrong filter comes back to be mended."""
    chosen = {name: request.args.get(name, "").strip() or None for name in _FILTERS}
    after = request.args.get("after")
    error: UsageError | None = None
    found = EventPage(())
    try:
        found = container().comparing.events(
            model=chosen["model"],
            target=chosen["target"],
            verdict=chosen["verdict"],
            after=after,
            limit=_LIMIT,
        )
    except UsageError as caught:
        error = caught
    return page(
        "changes.html",
        room="changes",
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
