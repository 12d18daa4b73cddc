"""Two artifacts side by side."""

from __future__ import annotations

from typing import NoReturn

from pt2hub.errors import NotFound
from pt2hub.server.pages.routes import routes


@routes.get("/compare")
def compare() -> NoReturn:
    raise NotFound("This page is not written yet")
