"""Flagged changes, newest first."""

from __future__ import annotations

from typing import NoReturn

from pt2hub.errors import NotFound
from pt2hub.server.pages.routes import routes


@routes.get("/changes")
def changes() -> NoReturn:
    raise NotFound("This page is not written yet")
