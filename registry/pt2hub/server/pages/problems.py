"""Errors as pages: what happened, where, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.errors import Pt2hubError
from pt2hub.server.api.problems import status_of
from pt2hub.server.pages.rendering import page
from pt2hub.server.pages.routes import routes

if TYPE_CHECKING:
    from flask import Response


@routes.errorhandler(Pt2hubError)
def ours(error: Pt2hubError) -> Response:
    """An error of ours, as a page."""
    status = status_of(type(error))
    return page("error.html", status=status, title=f"{status.value} {status.phrase}", error=error)
