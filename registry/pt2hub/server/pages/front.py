"""The front page: models, what is in production, recent builds, flagged changes."""

from __future__ import annotations

from typing import NoReturn

from pt2hub.errors import NotFound
from pt2hub.server.pages.routes import routes


@routes.get("/")
def front() -> NoReturn:
    raise NotFound("This page is not written yet")
