"""How a model's figures moved: a chart for each metric."""

from __future__ import annotations

from typing import NoReturn

from pt2hub.errors import NotFound
from pt2hub.server.pages.routes import routes


@routes.get("/models/<team>/<name>/performance")
def performance(team: str, name: str) -> NoReturn:
    raise NotFound("This page is not written yet")
