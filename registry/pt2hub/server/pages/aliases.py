"""An alias: its history, and forms that move or remove it."""

from __future__ import annotations

from typing import NoReturn

from pt2hub.errors import NotFound
from pt2hub.server.pages.routes import routes


@routes.get("/models/<team>/<name>/aliases/<alias>")
def alias(team: str, name: str, alias: str) -> NoReturn:
    raise NotFound("This page is not written yet")


@routes.post("/models/<team>/<name>/aliases")
def move_alias(team: str, name: str) -> NoReturn:
    raise NotFound("This page is not written yet")


@routes.post("/models/<team>/<name>/aliases/<alias>/remove")
def remove_alias(team: str, name: str, alias: str) -> NoReturn:
    raise NotFound("This page is not written yet")
