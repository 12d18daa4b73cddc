"""Forms that yank versions, and end yanks."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from flask import redirect, request, url_for

from pt2hub.server.api.context import container
from pt2hub.server.pages import sessions
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.numbers import MAX_VERSION

if TYPE_CHECKING:
    from werkzeug.wrappers import Response as WerkzeugResponse

_VERSION = f"/models/<team>/<name>/versions/<int(max={MAX_VERSION}):number>"


@routes.post(f"{_VERSION}/yank")
def yank_version(team: str, name: str, number: int) -> WerkzeugResponse:
    """Yank a version."""
    reason = request.form.get("reason", "")
    container().yanks.yank(f"{team}/{name}", number, reason=reason, by=sessions.actor())
    return _redirect_to_version(team, name, number, "yanked")


@routes.post(f"{_VERSION}/unyank")
def unyank_version(team: str, name: str, number: int) -> WerkzeugResponse:
    """End the yank of a version."""
    reason = request.form.get("reason", "")
    container().yanks.unyank(f"{team}/{name}", number, reason=reason, by=sessions.actor())
    return _redirect_to_version(team, name, number, "unyanked")


def _redirect_to_version(team: str, name: str, number: int, what: str) -> WerkzeugResponse:
    to = url_for("pages.version", team=team, name=name, number=number, done=what)
    return redirect(to, HTTPStatus.SEE_OTHER)
