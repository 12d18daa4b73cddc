"""A model: its versions, aliases, and how fast it is."""

from __future__ import annotations

from typing import NoReturn

from pt2hub.errors import NotFound
from pt2hub.server.pages.routes import routes


@routes.get("/models/<team>/<name>")
def model(team: str, name: str) -> NoReturn:
    raise NotFound("This page is not written yet")
