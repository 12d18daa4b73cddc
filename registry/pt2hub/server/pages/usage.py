"""Page of what teams use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import request

from pt2hub.server.api.context import container
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.templates import page

if TYPE_CHECKING:
    from flask import Response


@routes.get("/usage")
def usage() -> Response:
    """List teams with their versions, artifacts, stored bytes and unfinished builds, and the limits of each."""
    team = request.args.get("team") or None
    return page("usage.html", section="usage", view=container().usage.view(team), team=team)
